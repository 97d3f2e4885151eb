"""C++ functions that are called with values of every usual type; none may be punished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.attacks.case import Case, read_cases
from tests.support.honest.case import honest


def function(name: str, why: str, program: str, *, signature: str, **more: Any) -> Case:
    entry_point = signature.split("(")[0].split()[-1].lstrip("&*")
    return honest(name, why, program, signature=signature, entry_point=entry_point, **more)


FUNCTIONS = read_cases(
    r"""
    == call_named_arguments: a signature as people write it
    -- signature: "int add(int a, int b)", tests: [{call: [1, 2], expected: 3}, {call: [-5, 5], expected: 0}]
    int add(int a, int b) { return a + b; }

    == call_long: beyond 32 bits
    -- signature: "long long mul(long long, long long)",
    -- tests: [{call: [3000000000, 3], expected: 9000000000},
    -- {call: [-1, 9223372036854775807], expected: -9223372036854775807}]
    long long mul(long long a, long long b) { return a * b; }

    == call_text: std::string, with quotes and line ends
    -- signature: "string turned(string)",
    -- tests: [{call: ["abc"], expected: "cba"}, {call: ["a\"b\n\\"], expected: "\\\nb\"a"}, {call: [""], expected: ""}]
    #include <string>
    #include <algorithm>
    std::string turned(std::string s) { std::reverse(s.begin(), s.end()); return s; }

    == call_vector: std::vector
    -- signature: "vector<int> sorted_(vector<int>)",
    -- tests: [{call: [[3, 1, 2]], expected: [1, 2, 3]}, {call: [[]], expected: []}]
    #include <bits/stdc++.h>
    using namespace std;
    vector<int> sorted_(vector<int> a) { sort(a.begin(), a.end()); return a; }

    == call_by_reference: const references and references
    -- signature: "int total(const vector<int>&, vector<int>&)", tests: [{call: [[1, 2], [5]], expected: 5}]
    #include <bits/stdc++.h>
    using namespace std;
    int total(const vector<int>& a, vector<int>& b) { b.push_back(1);
        return accumulate(a.begin(), a.end(), (int)b.size()); }

    == call_pair: std::pair of a truth and of a double that comes back as it was, from vectors of vectors
    -- signature: "pair<bool, double> third(vector<vector<double>>)",
    -- tests: [{call: [[[1.0]]], expected: [true, 0.3333333333333333]},
    -- {call: [[[0.1], []]], expected: [false, 0.03333333333333333]}]
    #include <bits/stdc++.h>
    using namespace std;
    pair<bool, double> third(vector<vector<double>> a) { return {a.size() == 1, a[0][0] / 3}; }

    == call_map: std::map with text for keys
    -- signature: "map<string, int> counted(vector<string>)",
    -- tests: [{call: [["a", "b", "a"]], expected: {"a": 2, "b": 1}}]
    #include <bits/stdc++.h>
    using namespace std;
    map<string, int> counted(vector<string> a) { map<string, int> m; for (auto& s : a) m[s]++;
        return m; }

    == call_count: a name that the library has as well, and a driver may have
    -- signature: "int count(vector<int>, int)", tests: [{call: [[1, 2, 1], 1], expected: 2}]
    #include <vector>
    int count(std::vector<int> a, int x) { int n = 0; for (int y : a) n += y == x; return n; }

    == call_in_place: nothing is returned, the argument is what changes
    -- signature: "void doubled(vector<int>&)", tests: [{call: [[1, 2]], expected: [2, 4]}]
    #include <bits/stdc++.h>
    using namespace std;
    void doubled(vector<int>& a) { for (int& n : a) n *= 2; }

    == call_with_main: a main that was left in
    -- signature: "int twice(int)", tests: [{call: [4], expected: 8}]
    #include <iostream>
    int twice(int n) { return n * 2; }
    int main() { int n; std::cin >> n; std::cout << twice(n); return 0; }

    == call_with_namespace: names like the library's, and like a driver's
    -- signature: "int solve(int)", tests: [{call: [1], expected: 5}]
    #include <bits/stdc++.h>
    using namespace std;
    namespace help { int go(int n) { return n + 1; } }
    int value = 3;
    int result(int n) { return help::go(n) + value; }
    int solve(int n) { return result(n); }

    == call_prints_too: printed output of a call is ignored
    -- signature: "int inc(int)", tests: [{call: [1], expected: 2}]
    #include <iostream>
    int inc(int n) { std::cout << "working on " << n << std::endl; std::cerr << n; return n + 1; }

    == call_contest_macros: macros stay on this side
    -- signature: "int add(int, int)", tests: [{call: [1, 2], expected: 3}]
    #include <bits/stdc++.h>
    using namespace std;
    #define int long long
    #undef int
    #define f first
    #define pb push_back
    int add(int a, int b) { vector<pair<int, int>> v; v.pb({a, b}); return v[0].f + b; }

    == call_library_name: the library has overloads of the name
    -- signature: "double pow(double, int)", tests: [{call: [2.0, 3], expected: -8.0}]
    #include <bits/stdc++.h>
    using namespace std;
    double pow(double a, int n) { double r = 1; while (n--) r *= a; return -r; }
    """,
    make=function,
)

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in FUNCTIONS]
