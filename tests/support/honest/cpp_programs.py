"""C++ programs as people write them; none may be punished."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import read_cases
from tests.support.honest.case import gives, honest
from tests.support.honest.python_streams import MANY

_BITS = "#include <bits/stdc++.h>\nusing namespace std;\n"

PROGRAMS = [
    *read_cases(
        r"""
    == reads_by_cin: plain
    #include <iostream>
    int main() { int n; long long s = 0, x; std::cin >> n; while (n--) { std::cin >> x; s += x; }
        std::cout << s << std::endl; }

    == reads_by_fast_cin: sync_with_stdio(false)
    #include <bits/stdc++.h>
    using namespace std;
    int main() { ios::sync_with_stdio(false); cin.tie(nullptr); int n; long long s = 0, x; cin >> n;
        while (cin >> x) s += x; cout << s << '\n'; }

    == reads_by_scanf: C
    #include <cstdio>
    int main() { int n; long long s = 0, x; scanf("%d", &n); while (n--) { scanf("%lld", &x);
            s += x; } printf("%lld\n", s); }

    == reads_by_getchar: a reader of its own
    #include <cstdio>
    static long long number() { int c = getchar_unlocked(); while (c < '0') c = getchar_unlocked();
        long long x = 0; while (c >= '0') { x = x * 10 + c - '0'; c = getchar_unlocked(); }
        return x; }
    int main() { int n = number(); long long s = 0; while (n--) s += number(); printf("%lld\n", s);
    }

    == reads_by_fread: all at once
    #include <cstdio>
    #include <cstdlib>
    static char text[1 << 22];
    int main() { text[fread(text, 1, sizeof text - 1, stdin)] = 0; char* at = text;
        long n = strtol(at, &at, 10), s = 0; while (n--) s += strtol(at, &at, 10);
        printf("%ld\n", s); }

    == reads_by_read: the system call
    #include <cstdio>
    #include <cstdlib>
    #include <unistd.h>
    static char text[1 << 22];
    int main() { size_t size = 0;
        for (ssize_t more; (more = read(0, text + size, sizeof text - 1 - size)) > 0; size += more) {}
        char* at = text; long n = strtol(at, &at, 10), s = 0; while (n--) s += strtol(at, &at, 10);
        printf("%ld\n", s); }

    == reads_lines: getline and a stringstream
    -- input: "a b\nc d e\n", output: "5\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { string line; int count = 0; while (getline(cin, line)) { stringstream words(line);
            string word; while (words >> word) count++; } cout << count; }

    == reads_to_the_end: an input without a last line end
    -- input: "1\n2\n3", output: "6\n"
    #include <iostream>
    int main() { int x, s = 0; while (std::cin >> x) s += x; std::cout << s; }
    """,
        make=honest,
        tests=MANY,
    ),
    honest(
        "reads_nothing",
        "does not look at its input",
        """
        #include <cstdio>
        int main() { puts("ok"); }
        """,
        gives("ok\n", "7\n" * 100_000),
    ),
    *read_cases(
        r"""
    == recurses_deeply: a million frames
    -- limits: {memory_mb: 256}, output: "1000000\n"
    #include <cstdio>
    int depth(int n) { volatile int here = n; return n == 0 ? 0 : 1 + depth(here - 1); }
    int main() { printf("%d\n", depth(1000000)); }

    == array_on_the_stack: forty megabytes of it
    -- limits: {memory_mb: 256, time_s: 2.0}, output: "9999999\n"
    #include <cstdio>
    #include <cstring>
    int main() { static_assert(sizeof(int) == 4); volatile int a[10000000];
        for (int i = 0; i < 10000000; i++) a[i] = i; printf("%d\n", a[9999999]); }

    == static_array: two hundred megabytes of it, of 256
    -- limits: {memory_mb: 256, time_s: 2.0}, output: "1\n"
    #include <cstdio>
    #include <cstring>
    static char a[200 << 20];
    int main() { memset(a, 1, sizeof a); printf("%d\n", a[12345]); }

    == large_vectors: two hundred megabytes of 256
    -- limits: {memory_mb: 256, time_s: 2.0}, output: "52428800\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { vector<int> a(50 << 20, 1); cout << accumulate(a.begin(), a.end(), 0LL); }

    == takes_its_time: 0.6 of 1.0 seconds
    -- limits: {time_s: 1.0, wall_s: 10.0}, output: "ok\n"
    #include <cstdio>
    #include <ctime>
    int main() { volatile unsigned n = 0; while (clock() < 0.6 * CLOCKS_PER_SEC) n = n + 1;
        puts("ok"); }

    == threads: std::thread
    -- limits: {processes: 32}, output: "28\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { vector<thread> threads; atomic<int> s{0};
        for (int i = 0; i < 8; i++) threads.emplace_back([&s, i] { s += i; });
        for (auto& t : threads) t.join(); cout << s; }

    == futures: std::async
    -- limits: {processes: 32}, output: "42\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { auto f = async(launch::async, [] { return 42; }); mutex m; lock_guard<mutex> g(m);
        cout << f.get(); }

    == thread_with_a_large_stack: recursion in a thread
    -- limits: {memory_mb: 256, processes: 32}, output: "500000\n"
    #include <cstdio>
    #include <pthread.h>
    int depth(int n) { volatile int here = n; return n == 0 ? 0 : 1 + depth(here - 1); }
    void* work(void*) { printf("%d\n", depth(500000)); return nullptr; }
    int main() { pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 128 << 20);
        pthread_t t; if (pthread_create(&t, &a, work, nullptr)) return 1; pthread_join(t, nullptr);
    }

    == detached_thread: a thread that may be left alone at the end
    -- limits: {processes: 32}, output: "ok\n"
    #include <cstdio>
    #include <thread>
    #include <unistd.h>
    int main() { std::thread([] { sleep(60); }).detach(); puts("ok"); }

    == static_constructors: tables that are filled before main
    -- output: "81\n"
    #include <cstdio>
    struct Table { int a[100]; Table() { for (int i = 0; i < 100; i++) a[i] = i * i; } ~Table() {
            fflush(stdout); } } table;
    int main() { printf("%d\n", table.a[9]); }

    == exits_inside: exit(0) in a function
    -- output: "ok\n"
    #include <cstdio>
    #include <cstdlib>
    void done() { puts("ok"); exit(0); }
    int main() { done(); return 1; }

    == exceptions: thrown and caught
    -- output: "ok\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { try { vector<int> v; v.at(3); } catch (const out_of_range&) { cout << "ok"; } }

    == memory_runs_out: bad_alloc that is caught
    -- output: "ok\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { try { volatile size_t n = 8ull << 30; char* p = new char[n]; p[n / 2] = 1;
            cout << "much"; } catch (const bad_alloc&) { cout << "ok"; } }

    == writes_trailing_blanks: the usual loop
    -- output: "0 1 2\n"
    #include <cstdio>
    int main() { for (int i = 0; i < 3; i++) printf("%d ", i); puts(""); }

    == writes_errors: output to cerr is ignored
    -- output: "ok\n"
    #include <iostream>
    int main() { for (int i = 0; i < 1000; i++) std::cerr << "debugging "; std::clog << 1;
        std::cout << "ok\n"; }
    """,
        make=honest,
    ),
    honest(
        "writes_five_megabytes",
        "many lines",
        r"""
        #include <cstdio>
        int main() { for (int i = 0; i < 600000; i++) printf("%d\n", i); }
        """,
        gives("".join(f"{n}\n" for n in range(600_000))),
        limits={"output_kb": 8192},
    ),
    *read_cases(
        r"""
    == floats: setprecision, with a tolerance
    -- comparison: float, output: "3.14159265 2.5e17\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { cout << fixed << setprecision(9) << acos(-1.0) << ' ' << 2.5e17L; }

    == contest_style: macros, lambdas, ranges
    -- input: "2\n", output: "1:1 2:0 4\n"
    #include <bits/stdc++.h>
    using namespace std;
    #define int long long
    #define all(x) begin(x), end(x)
    #define rep(i, n) for (int i = 0; i < (n); i++)
    signed main() { int n; cin >> n; vector<pair<int, int>> v(n); rep(i, n) v[i] = {n - i, i};
        sort(all(v), [](auto& a, auto& b) { return a < b; });
        for (auto [a, b] : v) cout << a << ':' << b << ' '; map<string, set<int>> m;
        m["x"].insert(1); priority_queue<int, vector<int>, greater<>> q; q.push(3);
        cout << m.size() + q.top(); }

    == pragmas: what contest programs begin with, before every header
    -- output: "49950028\n"
    #pragma GCC optimize("O3,unroll-loops")
    #pragma GCC target("sse4.2,popcnt")
    #include <bits/stdc++.h>
    using namespace std;
    int main() { ios_base::sync_with_stdio(0); vector<int> a(1000); iota(a.begin(), a.end(), 0);
        bitset<100> b; b[3] = b[7] = 1;
        cout << accumulate(a.begin(), a.end(), 0) << b.count() << __builtin_popcountll(255); }

    == random_and_time: mt19937 from the clock
    -- output: "ok\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { mt19937_64 g(chrono::steady_clock::now().time_since_epoch().count());
        random_device d; d(); int x = uniform_int_distribution<int>(1, 6)(g);
        cout << (x >= 1 && x <= 6 && time(nullptr) > 0 ? "ok" : "no"); }

    == wide_numbers: __int128 and long double
    -- output: "4\n"
    #include <cstdio>
    int main() { __int128 x = 1; for (int i = 0; i < 100; i++) x *= 2;
        printf("%d\n", (int)(x >> 98)); }

    == warnings_only: warnings are no errors
    -- output: "ok\n"
    #include <stdio.h>
    int f() {}
    int main() { int unused; char* s = (char*)"ok"; printf(s); puts(""); return 0; }

    == c_style: gets along with C
    -- output: "123\n"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int cmp(const void* a, const void* b) { return *(int*)a - *(int*)b; }
    int main() { int a[] = {3, 1, 2}; qsort(a, 3, sizeof *a, cmp);
        printf("%d%d%d\n", a[0], a[1], a[2]); }

    == reads_by_mmap: standard input as memory
    #include <cstdio>
    #include <cstdlib>
    #include <sys/mman.h>
    #include <sys/stat.h>
    int main() { struct stat about; fstat(0, &about);
        char* at = (char*)mmap(nullptr, about.st_size, PROT_READ, MAP_PRIVATE, 0, 0);
        if (at == MAP_FAILED) return 1; long n = strtol(at, &at, 10), s = 0;
        while (n--) s += strtol(at, &at, 10); printf("%ld\n", s); }

    == ordered_tree: the other library that g++ brings along
    -- output: "32\n"
    #include <bits/stdc++.h>
    #include <ext/pb_ds/assoc_container.hpp>
    #include <ext/pb_ds/tree_policy.hpp>
    using namespace __gnu_pbds;
    int main() {
        tree<int, null_type, std::less<int>, rb_tree_tag, tree_order_statistics_node_update> t;
        for (int n : {5, 1, 3}) t.insert(n); std::cout << *t.find_by_order(1) << t.order_of_key(5);
    }

    == pauses: system("pause") from another operating system does nothing here
    -- output: "ok\n"
    #include <cstdio>
    #include <cstdlib>
    int main() { puts("ok"); fflush(stdout); int done = system("pause"); (void)done; return 0; }

    == reads_from_a_file_if_there_is_one: freopen of a file that is only on the author's machine
    -- input: "3 4\n", output: "7\n"
    #include <cstdio>
    int main() { if (FILE* f = fopen("input.txt", "r")) { fclose(f);
            freopen("input.txt", "r", stdin); } int a, b; scanf("%d %d", &a, &b);
        printf("%d\n", a + b); }

    == patterns: <regex>, which takes long to compile
    -- output: "12\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { smatch m; string s = "a12b"; regex_search(s, m, regex("[0-9]+")); cout << m[0]; }
    """,
        make=honest,
        tests=MANY,
    ),
    honest(
        "two_of_three",
        "partial credit",
        """
        #include <iostream>
        int main() { int n; std::cin >> n; std::cout << (n < 10 ? n * n : 0); }
        """,
        [{"input": "2", "output": "4"}, {"input": "3", "output": "9"}, {"input": "10", "output": "100"}],
        allowed=("AC", "AC", "WA"),
    ),
]

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in PROGRAMS]
