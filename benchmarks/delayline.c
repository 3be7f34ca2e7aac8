/* An Ethernet switch in user space that hands every frame on after a fixed time.
 *
 *     delayline DELAY_US PORT...
 *
 * `netns.py` compiles it and runs it in the namespace of the switch, where it takes the bridge's place: many kernels have
 * no netem. Port k is the interface that leads to host k, whose Ethernet address ends in k: a frame's last byte of the
 * destination is the port that it leaves by, and a group address leaves by all the others. It delays, and nothing else;
 * rates are set by tbf on the interfaces.
 *
 * Frames are read with their virtio header, so that those of 64 KiB that TCP makes pass whole, straight into a ring of
 * bytes in the order in which they came, which is the order in which they fall due. Where the ring or a port is full,
 * frames are lost, as they are in any switch. The program asks for a real-time priority, and goes on without: what
 * polls on the hosts shares the cores with it, and must not be part of the delay.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
    MOST_PORTS = 64,
    MOST_BYTES = 68 << 10,      /* of one frame: 64 KiB of TCP and its headers */
    RING_BYTES = 32 << 20,      /* a second and more of 100 Mbit/s, 1 ms of 256 Gbit/s */
    AT_ONCE = 32,               /* frames taken from one port before the next one's turn */
    SOCKET_BYTES = 16 << 20,
};

struct frame {
    int64_t due_ns;
    uint32_t nbytes;            /* 0: the rest of the ring is unused, go on at its start */
    uint32_t came_by;
    unsigned char bytes[];
};

static unsigned char *ring;
static size_t first, next, used;        /* where the oldest frame and the next one begin; bytes in between */
static struct pollfd ports[MOST_PORTS];
static int count;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static size_t room_of(uint32_t nbytes) {
    return (sizeof(struct frame) + nbytes + 15) & ~(size_t)15;
}

/* Where a frame of any size may be written, or NULL while the ring is full. */
static struct frame *place(void) {
    size_t most = room_of(MOST_BYTES);
    if (RING_BYTES - next < most) {
        if (used + (RING_BYTES - next) + most > RING_BYTES) return NULL;
        *(struct frame *)(ring + next) = (struct frame){0};
        used += RING_BYTES - next;
        next = 0;
    }
    return used + most > RING_BYTES ? NULL : (struct frame *)(ring + next);
}

static void take_in(int port, int64_t due_ns) {
    for (int turn = 0; turn < AT_ONCE; turn++) {
        struct frame *frame = place();
        if (!frame) return;
        ssize_t nbytes = recv(ports[port].fd, frame->bytes, MOST_BYTES, MSG_DONTWAIT);
        if (nbytes < (ssize_t)(sizeof(struct virtio_net_hdr) + ETH_HLEN)) return;
        *frame = (struct frame){due_ns, (uint32_t)nbytes, (uint32_t)port};
        next = (next + room_of(frame->nbytes)) % RING_BYTES;
        used += room_of(frame->nbytes);
    }
}

static void hand_on(const struct frame *frame) {
    const unsigned char *target = frame->bytes + sizeof(struct virtio_net_hdr);
    for (int port = 0; port < count; port++) {
        int meant = target[0] & 1 ? port != (int)frame->came_by : port == target[5];
        if (meant) (void)!send(ports[port].fd, frame->bytes, frame->nbytes, MSG_DONTWAIT);
    }
}

/* Hands on what is due. Returns when the next frame will be, or -1 if there is none. */
static int64_t let_out(void) {
    while (used) {
        struct frame *frame = (struct frame *)(ring + first);
        size_t room;
        if (frame->nbytes) {
            if (frame->due_ns > now_ns()) return frame->due_ns;
            hand_on(frame);
            room = room_of(frame->nbytes);
        } else {
            room = RING_BYTES - first;
        }
        used -= room;
        first = (first + room) % RING_BYTES;
    }
    return -1;
}

static int open_port(const char *name) {
    int one = 1, nbytes = SOCKET_BYTES;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || !address.sll_ifindex ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one)) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &nbytes, sizeof nbytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &nbytes, sizeof nbytes);
    return bind(fd, (struct sockaddr *)&address, sizeof address) ? -1 : fd;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc - 2 > MOST_PORTS) {
        fprintf(stderr, "usage: delayline DELAY_US PORT...\n");
        return 2;
    }
    int64_t delay_ns = atoll(argv[1]) * 1000;
    for (; count < argc - 2; count++) {
        ports[count] = (struct pollfd){.fd = open_port(argv[count + 2]), .events = POLLIN};
        if (ports[count].fd < 0) {
            perror(argv[count + 2]);
            return 1;
        }
    }
    ring = aligned_alloc(64, RING_BYTES);
    if (!ring) return 1;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1000);
    struct sched_param priority = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &priority);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int64_t due_ns = let_out(), wait_ns = due_ns - now_ns();
        if (wait_ns < 0) wait_ns = 0;
        struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
        if (ppoll(ports, (nfds_t)count, due_ns < 0 ? NULL : &wait, NULL) < 0 && errno != EINTR) return 1;
        int64_t came_ns = now_ns();
        for (int port = 0; port < count; port++)
            if (ports[port].revents & POLLIN) take_in(port, came_ns + delay_ns);
    }
}
