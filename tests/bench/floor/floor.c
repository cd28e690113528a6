/* floor.c - the floor: least work a client can do to read SSE streams and time every event. One thread, epoll.
 *   gcc -O2 -o floor floor.c
 *   floor PORT CONCURRENCY REQUESTS TOKENS [OUT.bin] [RATE]
 * Keep-alive connections, one per slot. Each recv() is timed once; each SSE event ("\n\n") gets that time.
 * With RATE (requests/s) requests start on a fixed open-loop schedule, up to CONCURRENCY connections.
 * OUT.bin holds one CLI1 record per request (see client_record in protos.py). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
typedef int64_t ns_t;
static ns_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
struct slot { int fd, id, n, cap, busy; ns_t sched, send; ns_t *t; char tail[8]; int tl; };
static int port, conc, total, tokens, started, done; static double rate; static FILE *out; static long bytes, events, recvs;
static ns_t t0; static int64_t lag_max; static double lag_sum;
static void begin(struct slot *s) {
    char b[1024], body[512];
    s->id = started++; s->n = 0; s->tl = 0; s->busy = 1; s->sched = rate > 0 ? t0 + (ns_t)(s->id / rate * 1e9) : 0;
    int bl = snprintf(body, sizeof body, "{\"model\":\"mock\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a long story about a ship.\"}],\"max_tokens\":%d,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", tokens);
    int n = snprintf(b, sizeof b, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nX-Request-Id: f-%d\r\nContent-Length: %d\r\n\r\n%s", port, s->id, bl, body);
    s->send = now(); if (rate > 0) { ns_t l = s->send - s->sched; if (l > lag_max) lag_max = l; lag_sum += l; }
    if (send(s->fd, b, n, 0) != n) { perror("send"); exit(1); }
}
int main(int c, char **v) {
    if (c < 5) return 2;
    port = atoi(v[1]); conc = atoi(v[2]); total = atoi(v[3]); tokens = atoi(v[4]); if (c > 5 && *v[5]) out = fopen(v[5], "wb"); if (c > 6) rate = atof(v[6]);
    prctl(PR_SET_TIMERSLACK, 1UL); int ep = epoll_create1(0), one = 1; struct slot *S = calloc(conc, sizeof *S), **freel = malloc(conc * sizeof *freel); int nf = 0;
    if (conc > total) conc = total;
    for (int i = 0; i < conc; i++) {
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        S[i].fd = socket(AF_INET, SOCK_STREAM, 0); if (connect(S[i].fd, (void *)&a, sizeof a)) { perror("connect"); return 1; }
        setsockopt(S[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); S[i].cap = tokens + 8; S[i].t = malloc(8 * S[i].cap);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = &S[i] }; epoll_ctl(ep, EPOLL_CTL_ADD, S[i].fd, &e); freel[nf++] = &S[i];
    }
    t0 = now() + (rate > 0 ? 5000000 : 0); static char buf[65536]; struct epoll_event ev[512];
    while (done < total) {
        struct timespec ts, *tp = NULL;
        while (nf && started < total) {
            if (rate > 0) { ns_t d = t0 + (ns_t)(started / rate * 1e9) - now(); if (d > 0) { ts.tv_sec = d / 1000000000; ts.tv_nsec = d % 1000000000; tp = &ts; break; } }
            begin(freel[--nf]);
        }
        int n = epoll_pwait2(ep, ev, 512, tp, NULL);
        for (int i = 0; i < n; i++) {
            struct slot *s = ev[i].data.ptr; ssize_t k = recv(s->fd, buf, sizeof buf, MSG_DONTWAIT);
            if (k <= 0) { if (k < 0 && errno == EAGAIN) continue; fprintf(stderr, "lost connection\n"); return 1; }
            ns_t t = now(); bytes += k; recvs++;
            char *p = buf, *e = buf + k, *q;
            if (s->tl && s->tail[s->tl-1] == '\n' && *p == '\n') { if (s->n < s->cap) s->t[s->n++] = t; p++; }
            while ((q = memmem(p, e - p, "\n\n", 2))) { if (s->n < s->cap) s->t[s->n++] = t; p = q + 2; }
            int end = k >= 5 ? !memcmp(e - 5, "0\r\n\r\n", 5) : 0;
            if (k < 5) { char x[16]; memcpy(x, s->tail, s->tl); memcpy(x + s->tl, buf, k); int l = s->tl + k; end = l >= 5 && !memcmp(x + l - 5, "0\r\n\r\n", 5); int m = l > 8 ? 8 : l; memmove(s->tail, x + l - m, m); s->tl = m; }
            else { memcpy(s->tail, e - 5, 5); s->tl = 5; }
            if (end) {
                done++; events += s->n; s->busy = 0;
                if (out) { struct { uint32_t m, n; char id[64]; int64_t a, b; } r = { 0x31494c43, s->n, {0}, s->send, t }; snprintf(r.id, 64, "f-%d", s->id); fwrite(&r, sizeof r, 1, out); fwrite(s->t, 8, s->n, out); }
                if (rate <= 0 && started < total) begin(s); else freel[nf++] = s;
            }
        }
    }
    double w = (now() - t0) / 1e9; if (out) fclose(out); struct rusage ru; getrusage(RUSAGE_SELF, &ru);
    double cpu = ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6; long tok = (long)total * tokens;
    printf("floor: %d requests, %ld tokens, %ld events, %ld recvs, %.1f MB in %.3f s = %.0f tok/s; cpu %.3f s = %.2f us/token", total, tok, events, recvs, bytes / 1e6, w, tok / w, cpu, cpu * 1e6 / tok);
    if (rate > 0) printf("; send lag mean %.1f us max %.1f us", lag_sum / total / 1e3, lag_max / 1e3);
    puts(""); return 0;
}
