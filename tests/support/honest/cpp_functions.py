"""C++ functions that are called with values of every usual type; none may be punished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.attacks.case import Case, block
from tests.support.honest.case import honest

_BITS = "#include <bits/stdc++.h>\nusing namespace std;\n"


def function(
    name: str, why: str, signature: str, program: str, *tests: tuple[list[object], object], **more: Any
) -> Case:
    entry_point = signature.split("(")[0].split()[-1].lstrip("&*")
    return honest(
        name,
        why,
        program,
        [{"call": words, "expected": expected} for words, expected in tests],
        signature=signature,
        entry_point=entry_point,
        **more,
    )


FUNCTIONS = [
    function(
        "call_int", "plain", "int add(int, int)", "int add(int a, int b) { return a + b; }", ([1, 2], 3), ([-5, 5], 0)
    ),
    function(
        "call_named_arguments",
        "a signature as people write it",
        "int add(int a, int b)",
        "int add(int a, int b) { return a + b; }",
        ([1, 2], 3),
    ),
    function(
        "call_long",
        "beyond 32 bits",
        "long long mul(long long, long long)",
        "long long mul(long long a, long long b) { return a * b; }",
        ([3000000000, 3], 9000000000),
        ([-1, 9223372036854775807], -9223372036854775807),
    ),
    function(
        "call_bool",
        "true and false",
        "bool even(int)",
        "bool even(int n) { return n % 2 == 0; }",
        ([2], True),
        ([3], False),
    ),
    function(
        "call_double",
        "a double comes back as it was",
        "double third(double)",
        "double third(double x) { return x / 3; }",
        ([1.0], 1.0 / 3),
        ([0.1], 0.1 / 3),
    ),
    function(
        "call_text",
        "std::string, with quotes and line ends",
        "string turned(string)",
        """
        #include <string>
        #include <algorithm>
        std::string turned(std::string s) { std::reverse(s.begin(), s.end()); return s; }
        """,
        (["abc"], "cba"),
        (['a"b\n\\'], '\\\nb"a'),
        ([""], ""),
    ),
    function(
        "call_vector",
        "std::vector",
        "vector<int> sorted_(vector<int>)",
        _BITS + "vector<int> sorted_(vector<int> a) { sort(a.begin(), a.end()); return a; }",
        ([[3, 1, 2]], [1, 2, 3]),
        ([[]], []),
    ),
    function(
        "call_by_reference",
        "const references and references",
        "int total(const vector<int>&, vector<int>&)",
        _BITS
        + block("""
            int total(const vector<int>& a, vector<int>& b) { b.push_back(1);
                return accumulate(a.begin(), a.end(), (int)b.size()); }
        """),
        ([[1, 2], [5]], 5),
    ),
    function(
        "call_grid",
        "vectors of vectors",
        "vector<vector<int>> turned(vector<vector<int>>)",
        _BITS
        + block("""
            vector<vector<int>> turned(vector<vector<int>> a) {
                vector<vector<int>> b(a[0].size(), vector<int>(a.size()));
                for (size_t i = 0; i < a.size(); i++) for (size_t j = 0; j < a[0].size(); j++) b[j][i] = a[i][j];
                return b; }
        """),
        ([[[1, 2], [3, 4]]], [[1, 3], [2, 4]]),
    ),
    function(
        "call_texts",
        "a vector of strings",
        "vector<string> words(string)",
        _BITS
        + block("""
            vector<string> words(string s) { stringstream in(s); vector<string> out; string w;
                while (in >> w) out.push_back(w); return out; }
        """),
        (["a bc d"], ["a", "bc", "d"]),
    ),
    function(
        "call_pair",
        "std::pair",
        "pair<int, int> ends(vector<int>)",
        _BITS + "pair<int, int> ends(vector<int> a) { return {a.front(), a.back()}; }",
        ([[1, 2, 3]], [1, 3]),
    ),
    function(
        "call_map",
        "std::map with text for keys",
        "map<string, int> counted(vector<string>)",
        _BITS
        + block("""
            map<string, int> counted(vector<string> a) { map<string, int> m; for (auto& s : a) m[s]++;
                return m; }
        """),
        ([["a", "b", "a"]], {"a": 2, "b": 1}),
    ),
    function(
        "call_gcd",
        "a name that the library has as well",
        "int gcd(int, int)",
        "int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }",
        ([12, 18], 6),
    ),
    function(
        "call_max",
        "a name that the library has as well",
        "int max(int, int)",
        """
        #include <algorithm>
        int max(int a, int b) { return a > b ? a : b; }
        """,
        ([1, 2], 2),
    ),
    function(
        "call_reverse",
        "a name that the library has as well",
        "vector<int> reverse(vector<int>)",
        _BITS + "vector<int> reverse(vector<int> a) { return vector<int>(a.rbegin(), a.rend()); }",
        ([[1, 2]], [2, 1]),
    ),
    function(
        "call_count",
        "a name that the library has as well, and a driver may have",
        "int count(vector<int>, int)",
        """
        #include <vector>
        int count(std::vector<int> a, int x) { int n = 0; for (int y : a) n += y == x; return n; }
        """,
        ([[1, 2, 1], 1], 2),
    ),
    function(
        "call_in_place",
        "nothing is returned, the argument is what changes",
        "void doubled(vector<int>&)",
        _BITS + "void doubled(vector<int>& a) { for (int& n : a) n *= 2; }",
        ([[1, 2]], [2, 4]),
    ),
    function(
        "call_with_main",
        "a main that was left in",
        "int twice(int)",
        """
        #include <iostream>
        int twice(int n) { return n * 2; }
        int main() { int n; std::cin >> n; std::cout << twice(n); return 0; }
        """,
        ([4], 8),
    ),
    function(
        "call_with_namespace",
        "names like the library's, and like a driver's",
        "int solve(int)",
        _BITS
        + block("""
            namespace help { int go(int n) { return n + 1; } }
            int value = 3;
            int result(int n) { return help::go(n) + value; }
            int solve(int n) { return result(n); }
        """),
        ([1], 5),
    ),
    function(
        "call_class_inside",
        "a class of its own within",
        "int counted(int)",
        """
        #include <memory>
        struct Node { int n; std::unique_ptr<Node> next; };
        int counted(int n) { std::unique_ptr<Node> head;
            for (int i = 0; i < n; i++) head = std::unique_ptr<Node>(new Node{i, std::move(head)});
            int c = 0; for (auto* p = head.get(); p; p = p->next.get()) c++; return c; }
        """,
        ([100], 100),
    ),
    function(
        "call_prints_too",
        "what it prints is nobody's business",
        "int inc(int)",
        """
        #include <iostream>
        int inc(int n) { std::cout << "working on " << n << std::endl; std::cerr << n; return n + 1; }
        """,
        ([1], 2),
    ),
    function(
        "call_contest_macros",
        "macros stay on this side",
        "int add(int, int)",
        _BITS
        + block("""
            #define int long long
            #undef int
            #define f first
            #define pb push_back
            int add(int a, int b) { vector<pair<int, int>> v; v.pb({a, b}); return v[0].f + b; }
        """),
        ([1, 2], 3),
    ),
    function(
        "call_library_name",
        "the library has overloads of the name",
        "double pow(double, int)",
        _BITS + "double pow(double a, int n) { double r = 1; while (n--) r *= a; return -r; }",
        ([2.0, 3], -8.0),
    ),
    function(
        "call_partly_right",
        "one of two, one that dies",
        "int half(int)",
        "int half(int n) { volatile int zero = n - 7; return n == 7 ? n / zero : n / 2; }",
        ([4], 2),
        ([5], 3),
        ([7], 3),
        allowed=("AC", "WA", "RE"),
    ),
]

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in FUNCTIONS]
