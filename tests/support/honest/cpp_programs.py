"""C++ programs as people write them; none may be punished."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import read_cases
from tests.support.honest.case import gives, honest
from tests.support.honest.python_streams import MANY

PROGRAMS = [
    *read_cases(
        r"""
    == reads_by_fast_cin: sync_with_stdio(false)
    #include <bits/stdc++.h>
    using namespace std;
    int main() { ios::sync_with_stdio(false); cin.tie(nullptr); int n; long long s = 0, x; cin >> n;
        while (cin >> x) s += x; cout << s << '\n'; }

    == reads_by_read: the system call
    #include <cstdio>
    #include <cstdlib>
    #include <unistd.h>
    static char text[1 << 22];
    int main() { size_t size = 0;
        for (ssize_t more; (more = read(0, text + size, sizeof text - 1 - size)) > 0; size += more) {}
        char* at = text; long n = strtol(at, &at, 10), s = 0; while (n--) s += strtol(at, &at, 10);
        printf("%ld\n", s); }

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

    == memory_runs_out: bad_alloc that is caught
    -- output: "ok\n"
    #include <bits/stdc++.h>
    using namespace std;
    int main() { try { volatile size_t n = 8ull << 30; char* p = new char[n]; p[n / 2] = 1;
            cout << "much"; } catch (const bad_alloc&) { cout << "ok"; } }

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
    == pragmas: what contest programs begin with, before every header
    -- output: "49950028\n"
    #pragma GCC optimize("O3,unroll-loops")
    #pragma GCC target("sse4.2,popcnt")
    #include <bits/stdc++.h>
    using namespace std;
    int main() { ios_base::sync_with_stdio(0); vector<int> a(1000); iota(a.begin(), a.end(), 0);
        bitset<100> b; b[3] = b[7] = 1;
        cout << accumulate(a.begin(), a.end(), 0) << b.count() << __builtin_popcountll(255); }

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
    """,
        make=honest,
        tests=MANY,
    ),
]

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in PROGRAMS]
