/* mockserver.c - a fast mock LLM streaming server (OpenAI-compatible SSE) with a ground-truth log.
 * One thread, epoll, no dependencies:  gcc -O2 -o mockserver mockserver.c -lm
 * The flags are those of getopt below; the log is read with truth.py.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef int64_t ns_t;
static ns_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }

/* ---- options ---- */
static struct {
    int port, fixed_tokens, default_tokens, coalesce, per_chunk, role_early, jitter, step, no_usage, mark;
    double ttft_ms, itl_ms; uint64_t seed; const char *log, *model;
} O = { .port = 8300, .default_tokens = 128, .coalesce = 1, .per_chunk = 1, .seed = 1, .model = "mock" };
enum { J_NONE, J_EXP };

static const char *WORDS[] = { "the","of","and","to","in","is","was","for","that","on","with","as","by","are","this","from",
    "be","at","or","an","have","not","which","one","all","but","can","were","been","has","more","when" };
#define NW 32

struct conn {
    int fd, heapi, active, want_out, closing, http10, dead;
    char *in; size_t inlen, incap;
    char *out; size_t outoff, outlen, outcap;
    /* current request */
    int chat, streaming, usage, ntok, sent, nchunks, prompt_tokens, role_sent, backlog;
    char id[64], model[96]; uint64_t seq, rng; int have_id;
    ns_t t_accept, t_first, t_recv, t_role, t_done, due; double due_f;
    ns_t *tt; int ttcap; long created;
    struct conn *nxt, *prv; int inready;
};

static int ep, nconn; static uint64_t seqno; static FILE *logf_; static volatile sig_atomic_t stop_;
static uint64_t s_req, s_done, s_abort, s_tok, s_running, s_maxconn;

/* ---- timer heap ---- */
static struct conn **H; static int hn, hcap;
static void hset(int i, struct conn *c) { H[i] = c; c->heapi = i; }
static void hup(int i) { struct conn *c = H[i]; while (i && H[(i-1)/2]->due > c->due) { hset(i, H[(i-1)/2]); i = (i-1)/2; } hset(i, c); }
static void hdown(int i) { struct conn *c = H[i]; for (;;) { int k = 2*i+1; if (k >= hn) break; if (k+1 < hn && H[k+1]->due < H[k]->due) k++; if (H[k]->due >= c->due) break; hset(i, H[k]); i = k; } hset(i, c); }
static void hpush(struct conn *c) { if (hn == hcap) { hcap = hcap ? hcap*2 : 256; H = realloc(H, hcap * sizeof *H); } c->heapi = hn; H[hn++] = c; hup(hn-1); }
static void hdel(struct conn *c) { int i = c->heapi; if (i < 0) return; c->heapi = -1; hn--; if (i == hn) return; hset(i, H[hn]); hup(i); hdown(H[i]->heapi); }

/* ---- ready ring: unpaced streams that may write ---- */
static struct conn ring = { .nxt = &ring, .prv = &ring };
static void radd(struct conn *c) { if (c->inready) return; c->inready = 1; c->prv = ring.prv; c->nxt = &ring; ring.prv->nxt = c; ring.prv = c; }
static void rdel(struct conn *c) { if (!c->inready) return; c->inready = 0; c->prv->nxt = c->nxt; c->nxt->prv = c->prv; }

static double urand(struct conn *c) { uint64_t x = c->rng; x ^= x >> 12; x ^= x << 25; x ^= x >> 27; c->rng = x; return ((x * 2685821657736338717ULL) >> 11) * (1.0 / 9007199254740992.0); }
static double draw(struct conn *c, double mean_ms) { double ns = mean_ms * 1e6; return O.jitter == J_EXP ? -ns * log(1 - urand(c)) : ns; }

static void output(struct conn *c, const char *p, size_t n) {
    if (c->outoff == c->outlen) c->outoff = c->outlen = 0;
    if (c->outlen + n > c->outcap) { c->outcap = (c->outlen + n) * 2; c->out = realloc(c->out, c->outcap); }
    memcpy(c->out + c->outlen, p, n); c->outlen += n;
}
static void mod(struct conn *c, int want) { if (c->want_out == want) return; c->want_out = want; struct epoll_event e = { .events = EPOLLIN | (want ? EPOLLOUT : 0), .data.ptr = c }; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); }
static int flush_(struct conn *c) { /* 1 = all out, 0 = blocked, -1 = dead */
    while (c->outoff < c->outlen) {
        ssize_t k = send(c->fd, c->out + c->outoff, c->outlen - c->outoff, MSG_NOSIGNAL);
        if (k > 0) c->outoff += k;
        else if (errno == EINTR) continue;
        else if (errno == EAGAIN) { mod(c, 1); return 0; }
        else { c->dead = 1; return -1; }
    }
    c->outoff = c->outlen = 0; mod(c, 0); return 1;
}
static void log_rec(struct conn *c, int aborted) {
    if (!logf_) return;
    struct { uint32_t magic, ntimes; uint64_t seq; char id[64]; int32_t ntok, aborted, per_chunk, backlog; int64_t conn, t_accept, t_first, t_recv, t_role, t_done; } r;
    memset(&r, 0, sizeof r); r.magic = 0x3156534d; r.ntimes = c->nchunks; r.seq = c->seq; memcpy(r.id, c->id, 64); r.ntok = c->ntok; r.aborted = aborted;
    r.per_chunk = O.per_chunk; r.backlog = c->backlog; r.conn = c->fd; r.t_accept = c->t_accept; r.t_first = c->t_first; r.t_recv = c->t_recv; r.t_role = c->t_role; r.t_done = c->t_done;
    fwrite(&r, sizeof r, 1, logf_); fwrite(c->tt, 8, c->nchunks, logf_);
}
static void close_conn(struct conn *c) {
    if (c->active) { s_abort++; s_running--; log_rec(c, 1); }
    hdel(c); rdel(c); close(c->fd); free(c->in); free(c->out); free(c->tt); free(c); nconn--;
}

/* one SSE event as one HTTP chunk, the way uvicorn sends it */
static void http_chunk(struct conn *c, const char *body, int n) { char h[16]; int k = snprintf(h, sizeof h, "%x\r\n", n); output(c, h, k); output(c, body, n); output(c, "\r\n", 2); }
static int head(struct conn *c, char *b, size_t n) { return snprintf(b, n, "data: {\"id\":\"%s-%032llx\",\"object\":\"%s\",\"created\":%ld,\"model\":\"%s\",\"choices\":[", c->chat ? "chatcmpl" : "cmpl", (unsigned long long)c->seq, c->chat ? "chat.completion.chunk" : "text_completion", c->created, c->model); }
static void ev_role(struct conn *c) {
    char b[1024]; int n = head(c, b, sizeof b);
    n += snprintf(b+n, sizeof b-n, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":null}\n\n");
    c->t_role = now_ns(); c->role_sent = 1; http_chunk(c, b, n);
}
static void ev_token(struct conn *c) { /* writes per_chunk tokens as one event */
    char b[2048], w[1024]; int k = 0, m = 0, n = head(c, b, sizeof b);
    for (; k < O.per_chunk && c->sent < c->ntok && m < 900; k++, c->sent++) { if (O.mark && !c->sent) m += snprintf(w+m, sizeof w-m, " m%llu", (unsigned long long)c->seq); else m += snprintf(w+m, sizeof w-m, " %s", WORDS[(c->seq * 7 + c->sent) % NW]); }
    if (c->chat) n += snprintf(b+n, sizeof b-n, "{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n", w);
    else n += snprintf(b+n, sizeof b-n, "{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":null}]}\n\n", w);
    s_tok += k; http_chunk(c, b, n);
    if (c->outoff) c->backlog++;
    c->tt[c->nchunks++] = now_ns(); /* just before send(): a client cannot see it earlier */
}
static void ev_end(struct conn *c) {
    char b[1024]; int n = head(c, b, sizeof b);
    if (c->chat) n += snprintf(b+n, sizeof b-n, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,\"token_ids\":null}]}\n\n");
    else n += snprintf(b+n, sizeof b-n, "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,\"token_ids\":null}]}\n\n");
    http_chunk(c, b, n);
    if (c->usage && !O.no_usage) {
        n = head(c, b, sizeof b);
        n += snprintf(b+n, sizeof b-n, "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n", c->prompt_tokens, c->prompt_tokens + c->sent, c->sent);
        http_chunk(c, b, n);
    }
    c->t_done = now_ns(); http_chunk(c, "data: [DONE]\n\n", 14); output(c, "0\r\n\r\n", 5);
}
static void resp(struct conn *c, int code, const char *type, const char *body) {
    char h[256]; int n = snprintf(h, sizeof h, "HTTP/1.1 %d %s\r\nserver: mock\r\ncontent-type: %s\r\ncontent-length: %zu\r\n%s\r\n", code, code == 200 ? "OK" : code == 404 ? "Not Found" : "Bad Request", type, strlen(body), c->closing ? "connection: close\r\n" : "");
    output(c, h, n); output(c, body, strlen(body));
}

/* ---- a JSON scanner: only keys at depth 1, and stream_options.include_usage ---- */
static void scan(struct conn *c, const char *p, const char *e, int *mt, int *mct) {
    int depth = 0, arr[64] = {0}, so = 0, expect_key = 0; char key[40] = ""; long words = 0;
    while (p < e) {
        char ch = *p;
        if (ch == '"') {
            const char *s = ++p; int sp = 0;
            while (p < e && *p != '"') { if (*p == '\\') p++; else if (*p == ' ' || *p == '\n') sp++; p++; }
            size_t n = p - s; p++;
            if (depth < 64 && !arr[depth] && expect_key) {
                if (depth <= 2) { if (n > 39) n = 39; memcpy(key, s, n); key[n] = 0; if (depth == 1) so = !strcmp(key, "stream_options"); }
                expect_key = 0;
            } else { if (depth == 1 && !strcmp(key, "model")) { if (n > 90) n = 90; memcpy(c->model, s, n); c->model[n] = 0; }
                else if (n > 9) words += sp + 1; }
            continue;
        }
        if (ch == '{') { depth++; if (depth < 64) arr[depth] = 0; expect_key = 1; }
        else if (ch == '[') { depth++; if (depth < 64) arr[depth] = 1; }
        else if (ch == '}' || ch == ']') { depth--; }
        else if (ch == ',') { if (depth > 0 && depth < 64 && !arr[depth]) expect_key = 1; else if (depth == 2 && !strcmp(key, "prompt")) words++; }
        else if (ch == ':') {
            p++; while (p < e && isspace((unsigned char)*p)) p++;
            if (depth == 1) {
                if (!strcmp(key, "max_tokens")) { if (isdigit((unsigned char)*p)) *mt = atoi(p); }
                else if (!strcmp(key, "max_completion_tokens")) { if (isdigit((unsigned char)*p)) *mct = atoi(p); }
                else if (!strcmp(key, "stream")) c->streaming = *p == 't';
            } else if (depth == 2 && so && !strcmp(key, "include_usage")) c->usage = *p == 't';
            continue;
        }
        p++;
    }
    c->prompt_tokens = words > 0 ? words : 1;
}

static void finish(struct conn *c) { hdel(c); rdel(c); c->active = 0; s_done++; s_running--; log_rec(c, 0); }
static void start(struct conn *c) {
    c->active = 1; c->sent = c->nchunks = c->role_sent = c->backlog = 0; c->t_role = c->t_done = 0; c->created = time(NULL); s_running++; s_req++;
    c->rng = (O.seed * 0x9E3779B97F4A7C15ULL) ^ (c->seq * 0xD1B54A32D192ED03ULL) ^ 0x2545F4914F6CDD1DULL; for (int i = 0; i < 4; i++) urand(c);
    if (c->ntok + 1 > c->ttcap) { c->ttcap = c->ntok + 1; c->tt = realloc(c->tt, c->ttcap * 8); }
    if (c->streaming) {
        char h[400]; int n = snprintf(h, sizeof h, "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: %s\r\n%stransfer-encoding: chunked\r\n\r\n", c->id, c->closing ? "connection: close\r\n" : "");
        output(c, h, n); if (c->chat && O.role_early) ev_role(c);
        flush_(c); /* vLLM/uvicorn send the head before the first token is there */
    }
    c->due_f = c->t_recv + draw(c, O.ttft_ms);
    if (!c->streaming) { for (int i = 1; i < c->ntok; i++) c->due_f += draw(c, O.itl_ms); }
    c->due = c->due_f;
    if (O.step && O.itl_ms > 0) { ns_t g = O.itl_ms * 1e6; c->due = (c->due + g - 1) / g * g; }
    if (O.ttft_ms > 0 || O.itl_ms > 0) hpush(c); else radd(c);
}
/* one step of a stream; returns 1 if the request has ended */
static int step(struct conn *c) {
    if (!c->streaming) {
        char *b = malloc(c->ntok * 8 + 2048); int n = sprintf(b, "{\"id\":\"%s-%032llx\",\"object\":\"%s\",\"created\":%ld,\"model\":\"%s\",\"choices\":[{\"index\":0,%s", c->chat ? "chatcmpl" : "cmpl", (unsigned long long)c->seq, c->chat ? "chat.completion" : "text_completion", c->created, c->model, c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
        for (; c->sent < c->ntok; c->sent++) n += sprintf(b+n, " %s", WORDS[(c->seq * 7 + c->sent) % NW]);
        sprintf(b+n, "\"%s,\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}", c->chat ? "}" : "", c->prompt_tokens, c->prompt_tokens + c->ntok, c->ntok);
        s_tok += c->ntok; c->tt[c->nchunks++] = c->t_done = now_ns(); resp(c, 200, "application/json", b); free(b); flush_(c); finish(c); return 1;
    }
    if (c->chat && !c->role_sent) ev_role(c);
    for (int i = 0; i < O.coalesce && c->sent < c->ntok; i++) ev_token(c);
    if (c->sent >= c->ntok) { ev_end(c); flush_(c); finish(c); return 1; }
    flush_(c); return 0;
}

static void try_parse(struct conn *c) {
    while (!c->active && c->inlen && !c->dead) {
        char *he = memmem(c->in, c->inlen, "\r\n\r\n", 4);
        if (!he) { if (c->inlen > 65536) c->dead = 1; return; }
        size_t hl = he + 4 - c->in, bl = 0, total; int chunked = 0, expect = 0;
        char meth[8] = "", path[256] = "", ver[16] = ""; sscanf(c->in, "%7s %255s %15s", meth, path, ver);
        c->closing = !strcmp(ver, "HTTP/1.0"); c->have_id = 0;
        for (char *l = memchr(c->in, '\n', hl); l && l + 1 < c->in + hl - 2; l = memchr(l, '\n', c->in + hl - l)) {
            l++;
            if (!strncasecmp(l, "content-length:", 15)) bl = strtoul(l+15, 0, 10);
            else if (!strncasecmp(l, "transfer-encoding:", 18)) { char *q = memchr(l, '\n', he + 2 - l); if (q && memmem(l, q-l, "chunked", 7)) chunked = 1; }
            else if (!strncasecmp(l, "expect:", 7)) expect = 1;
            else if (!strncasecmp(l, "connection:", 11)) { char *q = l+11; while (*q == ' ') q++; if (!strncasecmp(q, "close", 5)) c->closing = 1; if (!strncasecmp(q, "keep-alive", 10)) c->closing = 0; }
            else if (!strncasecmp(l, "x-request-id:", 13)) { char *q = l+13; while (*q == ' ') q++; int n = 0; while (n < 63 && q[n] != '\r' && q[n] != '\n') n++; memcpy(c->id, q, n); memset(c->id+n, 0, 64-n); c->have_id = 1; }
        }
        char *body = c->in + hl; size_t blen = bl;
        if (chunked) { /* decode in place once it is all here */
            char *p = body, *e = c->in + c->inlen, *w = NULL; size_t wl = 0; int ok = 0; char *tmp = malloc(c->inlen);
            for (;;) { char *nl = memmem(p, e-p, "\r\n", 2); if (!nl) break; size_t k = strtoul(p, 0, 16); p = nl+2; if ((size_t)(e-p) < k+2) break; if (!k) { p += 2; ok = 1; break; } memcpy(tmp+wl, p, k); wl += k; p += k+2; }
            if (!ok) { free(tmp); goto more; }
            total = p - c->in; w = c->in + hl; memcpy(w, tmp, wl); free(tmp); body = w; blen = wl;
        } else { total = hl + bl; if (c->inlen < total) goto more; }
        c->t_recv = now_ns();
        if (!strcmp(meth, "POST") && (!strcmp(path, "/v1/chat/completions") || !strcmp(path, "/v1/completions"))) {
            int mt = -1, mct = -1; c->chat = path[4] == 'c' && path[5] == 'h'; c->streaming = c->usage = 0; strcpy(c->model, O.model); c->seq = ++seqno;
            scan(c, body, body + blen, &mt, &mct);
            c->ntok = O.fixed_tokens ? O.fixed_tokens : mct >= 0 ? mct : mt >= 0 ? mt : O.default_tokens; if (c->ntok < 1) c->ntok = 1; if (c->ntok > 1000000) c->ntok = 1000000;
            if (!c->have_id) { memset(c->id, 0, 64); snprintf(c->id, 64, "mock-%llu", (unsigned long long)c->seq); }
            start(c);
        } else if (!strcmp(path, "/v1/models")) { char b[512]; snprintf(b, sizeof b, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1767225600,\"owned_by\":\"vllm\",\"root\":\"%s\",\"parent\":null,\"max_model_len\":131072}]}", O.model, O.model); resp(c, 200, "application/json", b); flush_(c); }
        else if (!strcmp(path, "/health") || !strcmp(path, "/ping")) { resp(c, 200, "text/plain", ""); flush_(c); }
        else if (!strcmp(path, "/version")) { resp(c, 200, "application/json", "{\"version\":\"0.0.0+mock\"}"); flush_(c); }
        else if (!strcmp(path, "/metrics")) { char b[1024]; snprintf(b, sizeof b, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"%s\"} %llu\n# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{model_name=\"%s\"} %llu\n# TYPE vllm:request_success counter\nvllm:request_success_total{finished_reason=\"length\",model_name=\"%s\"} %llu\n# TYPE mock:aborted counter\nmock:aborted_total %llu\n# TYPE mock:connections gauge\nmock:connections %d\nmock:connections_max %llu\n", O.model, (unsigned long long)s_running, O.model, (unsigned long long)s_tok, O.model, (unsigned long long)s_done, (unsigned long long)s_abort, nconn, (unsigned long long)s_maxconn); resp(c, 200, "text/plain; version=0.0.4", b); flush_(c); }
        else { resp(c, 404, "application/json", "{\"error\":{\"message\":\"not found\",\"code\":404}}"); flush_(c); }
        memmove(c->in, c->in + total, c->inlen - total); c->inlen -= total;
        continue;
    more:
        if (expect && c->inlen == hl) { output(c, "HTTP/1.1 100 Continue\r\n\r\n", 25); flush_(c); }
        return;
    }
}
static void reap(struct conn *c) { if (c->dead || (c->closing && !c->active && c->outoff == c->outlen)) close_conn(c); }
static void on_in(struct conn *c) {
    for (;;) {
        if (c->incap - c->inlen < 16384) { c->incap = c->incap ? c->incap * 2 : 32768; c->in = realloc(c->in, c->incap); }
        ssize_t k = recv(c->fd, c->in + c->inlen, c->incap - c->inlen, 0);
        if (k > 0) { if (!c->inlen && !c->active) c->t_first = now_ns(); c->inlen += k; if ((size_t)k < 16384) break; }
        else if (k == 0) { c->dead = 1; return; }
        else if (errno == EINTR) continue; else if (errno == EAGAIN) break; else { c->dead = 1; return; }
    }
    try_parse(c);
}
static void on_sig(int s) { (void)s; stop_ = 1; }
int main(int argc, char **argv) {
    static struct option lo[] = { {"port",1,0,'p'},{"ttft-ms",1,0,'t'},{"itl-ms",1,0,'i'},{"tokens",1,0,'n'},{"default-tokens",1,0,'d'},{"jitter",1,0,'j'},{"seed",1,0,'s'},{"log",1,0,'l'},{"coalesce",1,0,'c'},{"tokens-per-chunk",1,0,'k'},{"role-early",0,0,'r'},{"step",0,0,'S'},{"model",1,0,'m'},{"no-usage",0,0,'U'},{"mark",0,0,'M'},{0,0,0,0} };
    int o; while ((o = getopt_long(argc, argv, "", lo, 0)) != -1) switch (o) {
        case 'p': O.port = atoi(optarg); break; case 't': O.ttft_ms = atof(optarg); break; case 'i': O.itl_ms = atof(optarg); break;
        case 'n': O.fixed_tokens = atoi(optarg); break; case 'd': O.default_tokens = atoi(optarg); break; case 'j': O.jitter = !strncmp(optarg, "exp", 3) ? J_EXP : J_NONE; break;
        case 's': O.seed = strtoull(optarg, 0, 10); break; case 'l': O.log = optarg; break; case 'c': O.coalesce = atoi(optarg); break; case 'k': O.per_chunk = atoi(optarg); break;
        case 'r': O.role_early = 1; break; case 'S': O.step = 1; break; case 'm': O.model = optarg; break; case 'U': O.no_usage = 1; break; case 'M': O.mark = 1; break; default: return 2; }
    prctl(PR_SET_TIMERSLACK, 1UL); signal(SIGPIPE, SIG_IGN);
    struct sigaction sa = { .sa_handler = on_sig }; sigaction(SIGTERM, &sa, 0); sigaction(SIGINT, &sa, 0);
    struct rlimit rl; getrlimit(RLIMIT_NOFILE, &rl); rl.rlim_cur = rl.rlim_max; setrlimit(RLIMIT_NOFILE, &rl);
    if (O.log) { logf_ = fopen(O.log, "wb"); if (!logf_) { perror(O.log); return 1; } setvbuf(logf_, 0, _IOFBF, 1 << 20); }
    int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1; setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(O.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096)) { perror("bind"); return 1; }
    ep = epoll_create1(0); struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL }; epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
    fprintf(stderr, "mockserver on 127.0.0.1:%d ttft %.3f ms, itl %.3f ms%s%s\n", O.port, O.ttft_ms, O.itl_ms, O.jitter ? " exp" : "", O.step ? " step" : "");
    static struct epoll_event ev[1024];
    while (!stop_) {
        struct timespec ts = {0,0}, *tp = &ts;
        if (ring.nxt == &ring) { if (hn) { ns_t d = H[0]->due - now_ns(); if (d < 0) d = 0; ts.tv_sec = d / 1000000000; ts.tv_nsec = d % 1000000000; } else tp = NULL; }
        int n = epoll_pwait2(ep, ev, 1024, tp, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (!c) { for (;;) { int fd = accept4(ls, 0, 0, SOCK_NONBLOCK); if (fd < 0) break; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    c = calloc(1, sizeof *c); c->fd = fd; c->heapi = -1; c->t_accept = now_ns(); nconn++; if ((uint64_t)nconn > s_maxconn) s_maxconn = nconn;
                    struct epoll_event e2 = { .events = EPOLLIN, .data.ptr = c }; epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e2); } continue; }
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_in(c);
            if (!c->dead && (ev[i].events & EPOLLOUT)) { int f = flush_(c); if (f == 1 && c->active && c->heapi < 0) radd(c); if (f == 1 && !c->active) try_parse(c); }
            reap(c);
        }
        /* timed streams */
        for (ns_t t = now_ns(); hn && H[0]->due <= t; ) {
            struct conn *c = H[0];
            if (step(c)) { if (!c->dead) try_parse(c); reap(c); continue; }
            if (c->dead) { reap(c); continue; }
            if (O.itl_ms <= 0) { hdel(c); radd(c); continue; }
            for (int i = 0; i < O.coalesce; i++) c->due_f += draw(c, O.itl_ms);
            if (O.step) { ns_t g = O.itl_ms * 1e6; c->due = c->due + g; } else c->due = c->due_f;
            hdown(0);
        }
        /* unpaced streams: one write each, round robin */
        for (struct conn *c = ring.nxt, *x; c != &ring; c = x) {
            x = c->nxt;
            if (c->want_out) { rdel(c); continue; } /* blocked: EPOLLOUT puts it back */
            if (step(c)) { if (!c->dead) try_parse(c); }
            if (!c->dead && c->want_out) rdel(c);
            if (c->dead || (c->closing && !c->active)) reap(c);
        }
    }
    if (logf_) fclose(logf_);
    struct rusage ru; getrusage(RUSAGE_SELF, &ru);
    fprintf(stderr, "mockserver: requests %llu done %llu aborted %llu tokens %llu maxconn %llu cpu %.3f s (%.2f us/token)\n", (unsigned long long)s_req, (unsigned long long)s_done, (unsigned long long)s_abort, (unsigned long long)s_tok, (unsigned long long)s_maxconn,
        ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6, s_tok ? (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6) * 1e6 / s_tok : 0);
    return 0;
}
