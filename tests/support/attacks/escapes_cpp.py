"""C++ programs that read, reach or signal what is not theirs: without an interpreter, by number where it must be."""

from __future__ import annotations

from dataclasses import replace

from tests.support.attacks.case import REPEATED_RUNS, Case, attempt_cpp, read_cases

_FIND = r"""
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <string>
static std::string slurp(const char* path) {
    std::string text; char block[65536]; int handle = open(path, O_RDONLY);
    if (handle < 0) return text;
    ssize_t size;
    while (text.size() < (8u << 20) && (size = read(handle, block, sizeof block)) > 0) text.append(block, size);
    close(handle);
    return text;
}
static bool show(const std::string& text, const char* head, const char* tail) {
    std::string prefix = std::string(head) + tail;
    size_t at = text.find(prefix);
    if (at == std::string::npos) return false;
    printf("%s\n", text.substr(at, prefix.size() + 32).c_str());
    return true;
}
"""

_CASES = [
    *read_cases(
        """
    == users_by_number: no library, no open(2) that anybody could have replaced
    -- needs: x86_64
    long handle; const char* path = "/etc/passwd"; char text[64];
    asm volatile("syscall" : "=a"(handle) : "a"(2), "D"(path), "S"(0), "d"(0) : "rcx", "r11", "memory");
    return handle >= 0 && read(handle, text, 64) > 0;

    == users_in_32_bits: the other table of system calls: open is number 5 there
    -- needs: x86_64
    char* low = (char*)mmap((void*)0x10000000, 4096, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(low, "/etc/passwd");
    long handle;
    asm volatile("int $0x80" : "=a"(handle) : "a"(5), "b"(low), "c"(0), "d"(0)
                 : "memory", "r8", "r9", "r10", "r11");
    return (int)handle >= 0;

    == x32_numbers: the third table: bit 30 of the number
    -- needs: x86_64
    return syscall(0x40000000 | 2, "/etc/passwd", 0, 0) >= 0;
    """,
        wrap=attempt_cpp,
    ),
    Case(
        "file_at_home",
        "a private file of who runs the judge",
        _FIND + 'int main() { puts(slurp("@HOME_CANARY@").c_str()); }',
        tests=({"input": "", "output": "@HOME_SECRET@\n"},),
    ),
    Case(
        "file_of_the_user",
        "a file that every user may read",
        _FIND + 'int main() { show(slurp("@CANARY_FILE@"), "canary-", "file-"); }',
        tests=({"input": "", "output": "@FILE_SECRET@\n"},),
    ),
    Case(
        "environment",
        "of this process and of its ancestors",
        _FIND
        + """
        extern char** environ;
        int main() {
            for (char** word = environ; word && *word; word++) if (show(*word, "canary-", "env-")) return 0;
            std::string parent = "/proc/" + std::to_string(getppid()) + "/environ";
            for (auto path : {"/proc/self/environ", parent.c_str(), "/proc/@NEIGHBOUR_PID@/environ"})
                if (show(slurp(path), "canary-", "env-")) return 0;
        }
        """,
        tests=({"input": "", "output": "@ENV_SECRET@\n"},),
    ),
    Case(
        "environment_above_the_stack",
        "what lies there whatever environ says",
        _FIND
        + """
        int main(int, char** words) {
            int ends[2]; if (pipe(ends)) return 0;
            std::string text; char page[4096];
            char* at = (char*)((size_t)words & ~4095ul);
            while (write(ends[1], at, 4096) == 4096 && read(ends[0], page, 4096) == 4096) {
            text.append(page, 4096);
            at += 4096;
        }
            if (!show(text, "canary-", "env-")) puts("held");
        }
        """,
        tests=({"input": "", "output": "@ENV_SECRET@\n"},),
    ),
    *read_cases(
        """
    == kill_the_parent: who started the program; SE is never right
    bool done = kill(getppid(), SIGKILL) == 0; usleep(100000); return done;

    == signal_everybody: kill(-1)
    return kill(-1, SIGURG) == 0;

    == kill_the_group: the process group may be the judge's
    -- plain: true, allowed: RE WA
    #include <csignal>
    #include <cstdio>
    int main() { puts(kill(0, SIGKILL) == 0 ? "breached" : "held"); }
    """,
        wrap=attempt_cpp,
    ),
    *read_cases(
        r"""
    == tcp: a service on this machine
    sockaddr_in address{}; address.sin_family = AF_INET; address.sin_port = htons(@PORT@);
    address.sin_addr.s_addr = htonl(0x7f000001);
    int handle = socket(AF_INET, SOCK_STREAM, 0);
    return connect(handle, (sockaddr*)&address, sizeof address) == 0 && write(handle, "hostile", 7) == 7;

    == unix_socket: a service with a path, from a pair that was allowed
    sockaddr_un address{}; address.sun_family = AF_UNIX; strcpy(address.sun_path, "@UNIX_PATH@");
    int ends[2], handle = socket(AF_UNIX, SOCK_STREAM, 0);
    if (handle < 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0) handle = ends[0];
    return connect(handle, (sockaddr*)&address, sizeof address) == 0;

    == datagram_to_a_path: a pair that was allowed sends to somebody else
    sockaddr_un address{}; address.sun_family = AF_UNIX; strcpy(address.sun_path, "@UNIX_DATAGRAM_PATH@");
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return false;
    return sendto(ends[0], "hostile", 7, 0, (sockaddr*)&address, sizeof address) == 7;

    == trace_the_parent: a debugger sees all
    return ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0;

    == memory_of_the_parent: process_vm_readv needs no file
    char here[64]; iovec mine{here, 64};
    for (size_t at : {0x400000ul, 0x401000ul, 0x555555554000ul, (size_t)&here & ~4095ul}) {
        iovec theirs{(void*)at, 64};
        if (process_vm_readv(getppid(), &mine, 1, &theirs, 1, 0) >= 0 || errno == EFAULT) return true;
    }
    return false;

    == limits_of_the_parent: a judge without file descriptors could judge no further program
    rlimit few{3, 3}; return prlimit(getppid(), RLIMIT_NOFILE, &few, nullptr) == 0;

    == shell: system(3)
    return system("exit 0") == 0;

    == replaced_by_a_shell: what started the program was itself an execve
    -- plain: true
    #include <unistd.h>
    int main() { execl("/bin/sh", "sh", "-c", "echo breached", (char*)nullptr); }

    == replaced_by_a_descriptor: execveat with every descriptor there is
    -- plain: true
    #include <cstdio>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int count, char** words) {
        if (count > 1) { puts("breached"); return 0; }
        char* more[] = {words[0], (char*)"again", nullptr}; char* none[] = {nullptr};
        for (int handle = 0; handle < 256; handle++) syscall(SYS_execveat, handle, "", more, none, 0x1000);
        execve("/proc/self/exe", more, none);
        puts("held");
    }

    == written_and_executed: memory that may be both is not the way to another program
    int handle = open("hostile-program", O_CREAT | O_WRONLY, 0700);
    if (handle < 0) return false;
    dprintf(handle, "#!/bin/sh\nexit 0\n"); close(handle);
    pid_t child = fork(); int status = 1;
    if (child == 0) { execl("./hostile-program", "x", (char*)nullptr); _exit(1); }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;

    == state_in_a_file: what the first run has left, the second must not find
    -- plain: true, tests: REPEATED_RUNS
    #include <cstdio>
    #include <initializer_list>
    #include <fcntl.h>
    #include <unistd.h>
    int main() {
        bool found = false, kept = false;
        for (auto path : {"hostile-cpp-state", "/tmp/hostile-cpp-state", "/dev/shm/hostile-cpp-state",
                          "/var/tmp/hostile-cpp-state"}) {
            found |= access(path, F_OK) == 0;
            kept |= open(path, O_CREAT | O_WRONLY, 0666) >= 0;
        }
        puts(found ? "again" : kept ? "first" : "held");
    }

    == fakes_a_report_everywhere: a launcher may listen on some descriptor
    -- plain: true
    #include <cstdio>
    #include <cstring>
    #include <unistd.h>
    int main() {
        const char* reports[] = {"AC\n", "{\"verdict\": \"AC\"}\n", "0 0 0 0\n", "exit 0\n"};
        int numbers[16] = {0};
        for (int handle = 3; handle < 1024; handle++) {
            for (auto report : reports) if (write(handle, report, strlen(report)) < 0) break;
            if (write(handle, numbers, sizeof numbers) < 0) continue;
        }
        puts("held");
    }

    == folders: reads the names in the root and in the folders above
    for (auto path : {"/", "/etc", "..", "/proc", "/home"}) { DIR* folder = opendir(path);
        if (folder && readdir(folder)) return true; }
    return false;

    == core_dump: an image of the program on the disk
    -- plain: true, allowed: RE
    #include <cstdlib>
    #include <sys/resource.h>
    int main() { rlimit all{RLIM_INFINITY, RLIM_INFINITY}; setrlimit(RLIMIT_CORE, &all); abort(); }
    """,
        wrap=attempt_cpp,
        named={"REPEATED_RUNS": REPEATED_RUNS},
    ),
]

CASES = [replace(case, name="cpp_" + case.name, language="cpp") for case in _CASES]
