"""The same in C++, where nothing stands between the program and the kernel."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import attempt_cpp, read_cases

_CASES = read_cases(
    r"""
    == stack_without_end: recursion that never returns
    -- plain: true, allowed: RE MLE
    #include <cstdio>
    int deep(volatile int n) { volatile char pad[512]; pad[n % 512] = 1;
        return deep(n + 1) + pad[7]; }
    int main() { printf("%d\n", deep(0)); }

    == stacks_of_threads: each thread's stack is within bounds, together they are not
    -- plain: true, allowed: MLE WA RE TLE, limits: {wall_s: 4.0}
    #include <pthread.h>
    #include <cstdio>
    #include <cstring>
    #include <unistd.h>
    void* work(void*) { char area[60 << 20]; memset(area, 1, sizeof area); sleep(1);
        return (void*)(size_t)area[99]; }
    int main() {
        pthread_attr_t attributes; pthread_attr_init(&attributes); pthread_attr_setstacksize(&attributes, 64 << 20);
        pthread_t threads[8];
        for (auto& thread : threads) if (pthread_create(&thread, &attributes, work, nullptr)) { puts("held");
            return 0; }
        for (auto& thread : threads) pthread_join(thread, nullptr);
        puts("breached");
    }

    == spin: plain
    -- plain: true
    int main() { volatile unsigned n = 0; for (;;) n = n + 1; }

    == deaf_pause: waits for a signal, and has blocked them all
    -- plain: true
    #include <csignal>
    #include <unistd.h>
    int main() { sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, nullptr);
        for (;;) pause(); }

    == deaf_to_the_time_limit: handlers for every signal, and more CPU time
    -- plain: true
    #include <csignal>
    #include <sys/resource.h>
    int main() {
        for (int i = 1; i < 65; i++) signal(i, [](int) {});
        rlimit none{RLIM_INFINITY, RLIM_INFINITY};
        setrlimit(RLIMIT_CPU, &none);
        for (volatile unsigned n = 0;; n = n + 1) {}
    }

    == fault_for_ever: a handler that returns to the fault
    -- plain: true, allowed: TLE RE
    #include <csignal>
    int main() { signal(SIGSEGV, [](int) {}); *(volatile int*)8 = 1; }

    == leader_is_gone: main ends alone, another thread spins
    -- plain: true, output: "ok\n"
    #include <pthread.h>
    #include <cstdio>
    #include <thread>
    int main() { puts("ok"); fflush(stdout);
        std::thread([] { for (volatile unsigned n = 0;; n = n + 1) {} }).detach();
        pthread_exit(nullptr); }

    == destructor_spins: the answer stands, but the program never ends
    -- plain: true, output: "ok\n"
    #include <cstdio>
    struct Last { ~Last() { for (volatile unsigned n = 0;; n = n + 1) {} } } last;
    int main() { puts("ok"); fflush(stdout); }

    == constructor_spins: before main
    -- plain: true
    struct First { First() { for (volatile unsigned n = 0;; n = n + 1) {} } } first;
    int main() {}

    == work_in_threads: four threads that share the work, but not the bill
    -- plain: true, limits: {wall_s: 6.0}, output: "ok\n"
    #include <cstdio>
    #include <ctime>
    #include <thread>
    #include <vector>
    int main() {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) threads.emplace_back([] {
            timespec now; volatile unsigned n = 0;
            do { for (int k = 0; k < 1000; k++) n = n + 1; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); }
            while (now.tv_nsec < 350000000 && !now.tv_sec);
        });
        for (auto& thread : threads) thread.join();
        puts("ok");
    }

    == fork_bomb: a few hundred children
    -- allowed: WA RE TLE MLE
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child < 0) return false;
        if (child == 0) { sleep(20); _exit(0); }
    }
    return true;

    == vfork_chain: a child that runs in the parent's memory, by number
    -- allowed: WA RE TLE MLE, needs: x86_64
    long child = syscall(SYS_vfork);
    if (child == 0) _exit(0);
    return child > 0;

    == clone_by_hand: fork without the C library
    -- allowed: WA RE TLE MLE, needs: x86_64
    for (int i = 0; i < 300; i++) {
        long child;
        asm volatile("syscall" : "=a"(child) : "a"(57) : "rcx", "r11", "memory");
        if (child < 0) return false;
        if (child == 0) { sleep(20); _exit(0); }
    }
    return true;

    == thread_bomb: more threads than are allowed
    -- plain: true, allowed: WA RE TLE MLE
    #include <cstdio>
    #include <thread>
    #include <unistd.h>
    int main() {
        for (int i = 0; i < 600; i++) std::thread([] { sleep(20); }).detach();
        puts("breached");
        fflush(stdout);
        _exit(0);
    }

    == daemon: a session of its own, and nothing of it may be there afterwards
    -- plain: true, allowed: AC WA RE TLE, output: "ok\n"
    #include <cstdio>
    #include <sys/prctl.h>
    #include <unistd.h>
    int main() {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            if (fork() == 0) { prctl(PR_SET_NAME, "hostile-cdaemon"); for (int i = 0; i < 256; i++) close(i);
                sleep(120); }
            _exit(0);
        }
        usleep(200000);
        puts(child > 0 ? "ok" : "held");
    }

    == flood: never ends
    -- plain: true, allowed: OLE TLE
    #include <unistd.h>
    static char block[1 << 16];
    int main() { for (;;) write(1, block, sizeof block); }

    == file_in_tmp: 300 megabytes for everybody
    -- allowed: WA RE TLE OLE
    static char block[1 << 20];
    const char* places[] = {"hostile-file", "/tmp/hostile-file", "/var/tmp/hostile-file",
                            "/dev/shm/hostile-file"};
    for (auto place : places) {
        int handle = open(place, O_CREAT | O_WRONLY, 0600);
        for (int i = 0; handle >= 0; i++) {
            if (i == 300) return true;
            if (write(handle, block, sizeof block) != sizeof block) break;
        }
    }
    return false;

    == memory_file: memory that no address space counts
    -- allowed: WA RE TLE OLE
    static char block[1 << 20];
    int handle = syscall(SYS_memfd_create, "hostile", 0);
    for (int i = 0; i < 400; i++) if (write(handle, block, sizeof block) != sizeof block) return false;
    return true;

    == aborts_after_the_answer: the answer is right, the end is not
    -- plain: true, allowed: RE, output: "ok\n"
    #include <cstdio>
    #include <cstdlib>
    int main() { puts("ok"); fflush(stdout); abort(); }
    """,
    wrap=attempt_cpp,
    allowed="TLE",
)

# Pages are dear on a virtual machine: time enough to fill the memory first.
_FILLING = {"time_s": 3.0, "wall_s": 8.0}
CASES = [
    replace(case, name="cpp_" + case.name, language="cpp", limits=_FILLING if case in _CASES[:3] else case.limits)
    for case in _CASES
]
