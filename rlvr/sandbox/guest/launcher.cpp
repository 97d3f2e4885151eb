// Start compiled programs, as zygote.py starts Python programs, in a small process: forking it costs little.
//
// zygote.py confines the process and then executes this program, with the descriptors of protocol.py. The narrow filter
// lies in the exchange file at the start. A request may bring a program (an open file), which is kept for the requests
// that follow. The two structures below are those of protocol.py.
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXCHANGE = 3, PROGRAM = 4, CONTROL = 5, WATCHDOG = 6 };
enum { RUN = 1 };
enum { IDLE = 3 };
enum { SCRIPT = 0, CALL = 1 };

struct __attribute__((packed)) Request {
    uint32_t operation, mode;
    uint64_t cpu_ns, space, size;
    uint32_t processes, format;
    uint64_t memory, idle_ns, wall_ns;
    uint32_t first_look_ms, process;
};
struct __attribute__((packed)) Reply {
    int32_t status;
    uint32_t resident_kib;
    uint64_t cpu_ns;
    uint32_t stopped;
};

static sock_filter filter[256];
static sock_fprog narrow = {0, filter};
static const uint32_t OWN_PID = 0x7E57C0DE;
static unsigned own_pid_places[8], own_count;
static long launcher;  // its process number

static void set_limit(int what, uint64_t value) {
    rlimit r;
    r.rlim_cur = r.rlim_max = value;
    setrlimit(static_cast<__rlimit_resource>(what), &r);
}

// Between vfork and exec: system calls only, since memory is shared with the parent, which waits.
[[noreturn]] static void execute(const Request &request) {
    static char *const nothing[] = {nullptr};
    static char name[] = "program";
    static char *const arguments[] = {name, nullptr};
    uint64_t seconds = request.cpu_ns / 1000000000ull + 2;
    set_limit(RLIMIT_CPU, seconds);
    set_limit(RLIMIT_FSIZE, request.size);
    if (request.processes) set_limit(RLIMIT_NPROC, request.processes);
    set_limit(RLIMIT_AS, request.space);
    if (request.mode != CALL) close(EXCHANGE);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (syscall(SYS_getppid) != launcher) _exit(127);  // it ended before the line above
    uint32_t own = static_cast<uint32_t>(syscall(SYS_getpid));
    for (unsigned i = 0; i < own_count; i++) filter[own_pid_places[i]].k = own;
    if (narrow.len && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &narrow, 0, 0) != 0) _exit(127);
    syscall(SYS_execveat, PROGRAM, "", arguments, nothing, 0x1000 /* AT_EMPTY_PATH */);
    _exit(127);
}

// As zygote.py does it: wait until the child has ended, without reaping it, and return why it was stopped.
static uint32_t await_end(pid_t child, Request request) {
    int process = static_cast<int>(syscall(434 /* pidfd_open */, child, 0));
    if (process < 0) _exit(1);
    pollfd ends[] = {{process, POLLIN, 0}, {CONTROL, POLLIN, 0}, {WATCHDOG, POLLIN, 0}};
    int timeout = static_cast<int>(request.first_look_ms);
    uint8_t stopped = 0, interrupted = 0;
    for (int ready; (ready = poll(ends, 3, timeout)), !ends[0].revents;) {
        Request interrupt;
        if (ready == 0) {
            request.process = child;
            if (write(WATCHDOG, &request, sizeof request) < 0) _exit(1);
            timeout = -1;
        } else if (ends[1].revents && read(CONTROL, &interrupt, sizeof interrupt) > 0) {
            kill(child, SIGKILL);
            interrupted = IDLE;
        } else {
            _exit(1);  // the judge or the watchdog is gone
        }
    }
    close(process);
    if (timeout < 0 && (write(WATCHDOG, "", 1) < 0 || read(WATCHDOG, &stopped, 1) != 1)) _exit(1);
    return stopped ? stopped : interrupted;
}

static Reply wait_for(pid_t child, const Request &request) {
    uint32_t stopped = await_end(child, request);
    int status = 0;
    rusage usage;
    memset(&usage, 0, sizeof usage);
    while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    uint64_t microseconds = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000ull + usage.ru_utime.tv_usec +
                            usage.ru_stime.tv_usec;
    return Reply{status, static_cast<uint32_t>(usage.ru_maxrss), microseconds * 1000, stopped};
}

int main() {
    launcher = syscall(SYS_getpid);
    struct stat info;
    if (fstat(EXCHANGE, &info) != 0 || info.st_size > static_cast<off_t>(sizeof filter)) return 1;
    if (pread(EXCHANGE, filter, info.st_size, 0) != info.st_size) return 1;
    narrow.len = info.st_size / sizeof(sock_filter);
    for (unsigned i = 0; i < narrow.len; i++)
        if (filter[i].k == OWN_PID && own_count < 8) own_pid_places[own_count++] = i;
    fcntl(CONTROL, F_SETFD, FD_CLOEXEC);
    fcntl(WATCHDOG, F_SETFD, FD_CLOEXEC);
    static const char ready[] = "ready";
    if (send(CONTROL, ready, sizeof ready - 1, 0) < 0) return 1;
    for (;;) {
        Request request;
        iovec part = {&request, sizeof request};
        alignas(cmsghdr) char attached[CMSG_SPACE(sizeof(int))];
        msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = attached;
        message.msg_controllen = sizeof attached;
        ssize_t got = recvmsg(CONTROL, &message, MSG_CMSG_CLOEXEC);
        if (got <= 0) return 0;
        if (cmsghdr *header = CMSG_FIRSTHDR(&message)) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
            if (descriptor != PROGRAM) {
                dup3(descriptor, PROGRAM, O_CLOEXEC);
                close(descriptor);
            }
        }
        if (got != sizeof request || request.operation != RUN) continue;
        pid_t child = vfork();
        if (child == 0) execute(request);
        Reply reply = {-1, 0, 0, 0};
        if (child > 0) reply = wait_for(child, request);
        if (send(CONTROL, &reply, sizeof reply, 0) < 0) return 0;
    }
}
