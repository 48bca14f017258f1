package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// impatient is for tests that need the whole ladder.
var impatient = patience{
	stall: 300 * time.Millisecond, drain: 100 * time.Millisecond,
	eof: 200 * time.Millisecond, term: 200 * time.Millisecond, kill: 5 * time.Second,
}

// quickExit spares children that are built with the race detector their second of sleep at exit.
const quickExit = "atexit_sleep_ms=0"

// eventually bounds what a test waits for.
const eventually = 20 * time.Second

func init() {
	roles["scripted"] = func() { scripted() }
	roles["stubborn"] = func() { signal.Ignore(syscall.SIGTERM); scripted(); select {} }
	roles["worker"] = func() {
		signal.Ignore(syscall.SIGTERM)
		_ = os.NewFile(3, "ready").Close()
		time.Sleep(time.Hour)
	}
	roles["deaf"] = func() { time.Sleep(time.Hour) }
	roles["endless"] = func() {
		for chunk := []byte(strings.Repeat("x", 1<<20)); ; {
			if _, err := os.Stdout.Write(chunk); err != nil {
				os.Exit(1)
			}
		}
	}
}

// scripted is a server that does what the method of each request says, until its stdin ends.
func scripted() {
	var mu sync.Mutex
	say := func(format string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format, a...)
	}
	fmt.Print(os.Getenv("TEST_BANNER"))
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			say("{\"broken\":%q}\n", line)
			continue
		}
		result := func(r string) { say(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, r) }
		number := func() int { n, _ := strconv.Atoi(string(m.Params)); return n }
		switch m.Method {
		case "echo":
			go result(string(m.Params))
		case "size":
			result(`"` + strings.Repeat("y", number()) + `"`)
		case "environment":
			env, _ := json.Marshal(os.Environ())
			result(string(env))
		case "chatter": // so many bytes to stderr first
			_, _ = os.Stderr.WriteString(strings.Repeat("blah blah\n", number()/10))
			result("true")
		case "flood": // the same without a newline
			_, _ = os.Stderr.WriteString(strings.Repeat("z", number()))
			result("true")
		case "text id":
			say(`{"jsonrpc":"2.0","id":"%s","result":"text"}`+"\n", m.ID)
		case "array":
			say(`[{"jsonrpc":"2.0","method":"notifications/first"},{"jsonrpc":"2.0","id":%s,"result":"array"}]`+"\n", m.ID)
		case "raw": // params is a string to print, with ID for the request's id
			say("%s", strings.ReplaceAll(jsonrpc.Unquote(m.Params), "ID", string(m.ID)))
		case "exit":
			fmt.Fprintln(os.Stderr, "last words")
			os.Exit(number())
		case "answer and exit":
			result("7")
			os.Exit(7)
		case "suicide":
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
		case "close stdout":
			_ = os.Stdout.Close()
		case "close stdin":
			_ = os.Stdin.Close()
		case "spawn": // a stubborn process that shares our pipes and group
			startWorker(func(c *exec.Cmd) { c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr })
			result("true")
		case "silence":
		}
	}
}

// startWorker starts a worker and waits until it is one.
func startWorker(with func(c *exec.Cmd)) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TEST_ROLE=worker")
	c.ExtraFiles = []*os.File{w}
	with(c)
	if err := c.Start(); err != nil {
		panic(err)
	}
	_ = w.Close()
	_, _ = r.Read(make([]byte, 1)) // until it closes its end
	_ = r.Close()
}

func spec(role string, env ...string) *configs.Server {
	s := &configs.Server{ID: role, Command: os.Args[0], Env: map[string]string{"TEST_ROLE": role, "GORACE": quickExit}}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		s.Env[name] = value
	}
	return s
}

// start starts a server and ends it with the test.
func start(t testing.TB, s *configs.Server, p patience, in inbound) *stdioWire {
	t.Helper()
	if in == nil {
		in = func(jsonrpc.Message, int64) {}
	}
	w, err := startStdio(t.Context(), s, in, slog.New(slog.DiscardHandler), p)
	if err != nil {
		t.Fatalf("start %s: %v", s.ID, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		if err := w.close(ctx); err != nil {
			t.Errorf("close %s: %v", s.ID, err)
		}
	})
	return w
}

func message(id int64, method, params string) outgoing {
	body := jsonrpc.AppendRequest(nil, []byte(strconv.FormatInt(id, 10)), method, []byte(params))
	return outgoing{id: id, method: method, body: body}
}

// ask makes a request that must be answered with a result.
func ask(t testing.TB, w *stdioWire, id int64, method, params string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	m, err := w.request(ctx, message(id, method, params))
	if err != nil {
		t.Fatalf("%s: %v; stderr %q", method, err, w.vitals().stderr)
	}
	if m.Result == nil {
		t.Fatalf("%s: got error %s, want a result", method, m.Error)
	}
	return string(m.Result)
}

func waitFor(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	if !await(c, eventually) {
		t.Fatalf("%s did not happen within %v", what, eventually)
	}
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct{ name, method, params, want string }{
		{"echo", "echo", `{"a":1}`, `{"a":1}`},
		{"newlines between tokens", "echo", "{\n\"a\":\r\n1}", "{ \"a\":\r 1}"},
		{"id as text", "text id", `1`, `"text"`},
		{"array", "array", `1`, `"array"`},
		{"null error beside a result", "raw", `"{\"id\":ID,\"error\":null,\"result\":{}}\n"`, `{}`},
		{"null result", "raw", `"{\"id\":ID,\"result\":null}\n"`, `null`},
		{"id as float", "raw", `"{\"id\":ID.0,\"result\":1}\n"`, `1`},
		{"CRLF", "raw", `"\r\n{\"id\":ID,\"result\":1}\r\n"`, `1`},
		{"split in the middle of a rune", "echo", `"日本語"`, `"日本語"`},
		{"noise before", "raw", `"Server v1 running on stdio\n\n\u001b[32mready\u001b[0m\n{\"id\":ID,\"result\":1}\n"`, `1`},
		{"JSON that is no message", "raw", `"{\"level\":\"info\"}\n[]\n[1]\n42\n{\"id\":ID,\"result\":1}\n"`, `1`},
		{"other answers", "raw", `"{\"id\":999,\"result\":0}\n{\"id\":\"a\",\"result\":0}\n{\"id\":ID,\"result\":1}\n"`, `1`},
		{"an answer without id", "raw", `"{\"id\":null,\"error\":{}}\n{\"id\":ID,\"result\":1}\n"`, `1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, spec("scripted"), usual, nil)
			if got := ask(t, w, 5, tt.method, tt.params); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := ask(t, w, 6, "echo", "6"); got != "6" {
				t.Errorf("the next one: got %s, want 6", got)
			}
		})
	}
}

func TestBannerIsNoise(t *testing.T) {
	banner := "\xef\xbb\xbfServer v1\n\n\x1b[1mcolour\x1b[0m\n" + strings.Repeat("w", 300) + "\n\xff\xfe\nfive\nsix\n"
	w := start(t, spec("scripted", "TEST_BANNER="+banner), usual, nil)
	ask(t, w, 1, "echo", "1")
	v := w.vitals()
	want := []string{"Server v1", "\x1b[1mcolour\x1b[0m", strings.Repeat("w", sampleLength), "\uFFFD", "five"}
	if v.noise != 6 || !slices.Equal(v.sample, want) {
		t.Errorf("got %d lines of noise, sample %q, want 6, %q", v.noise, v.sample, want)
	}
}

func TestByteOrderMarkBeforeMessage(t *testing.T) {
	got := make(chan string, 1)
	banner := "\xef\xbb\xbf" + `{"method":"notifications/hello","params":{"bad":"` + "\xff" + `"}}` + "\r\n"
	start(t, spec("scripted", "TEST_BANNER="+banner), usual, func(m jsonrpc.Message, _ int64) {
		got <- m.Method + " " + string(m.Params)
	})
	select {
	case g := <-got:
		if want := `notifications/hello {"bad":"` + "\uFFFD" + `"}`; g != want {
			t.Errorf("got %s, want %s", g, want)
		}
	case <-time.After(eventually):
		t.Error("the notification did not arrive")
	}
}

func TestLongLines(t *testing.T) {
	w := start(t, spec("scripted"), usual, nil)
	for i, n := range []int{70 << 10, 1_500_000, 11_000_000} {
		if got := ask(t, w, int64(i), "size", strconv.Itoa(n)); len(got) != n+2 {
			t.Errorf("got %d bytes, want %d", len(got), n+2)
		}
		text := `"` + strings.Repeat("q", n) + `"`
		if got := ask(t, w, int64(10+i), "echo", text); got != text {
			t.Errorf("there and back: got %d bytes, want the same %d", len(got), len(text))
		}
	}
}

func TestParallelRequests(t *testing.T) {
	w := start(t, spec("scripted"), usual, nil)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range 20 {
				id := int64(100*i + j)
				want := fmt.Sprintf(`{"n":%d,"fill":"%s"}`, id, strings.Repeat("f", j*1000))
				if got := ask(t, w, id, "echo", want); got != want {
					t.Errorf("request %d got the answer %.60s", id, got)
				}
			}
		})
	}
	all.Wait()
}

func TestStderrIsDrained(t *testing.T) {
	w := start(t, spec("scripted"), usual, nil)
	for i := range 5 {
		ask(t, w, int64(i), "chatter", "1000000")
	}
	ask(t, w, 9, "flood", "1000000")
	ask(t, w, 10, "echo", "1")
	for end := time.Now().Add(eventually); ; time.Sleep(time.Millisecond) { // the pipe may still hold some
		lines := w.vitals().stderr
		longest := slices.MaxFunc(append(lines, ""), func(a, b string) int { return len(a) - len(b) })
		if len(lines) > 0 && len(lines) <= ringLines && len(longest) <= ringLine && strings.HasPrefix(lines[len(lines)-1], "zzz") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got %d lines, the longest of %d bytes", len(lines), len(longest))
		}
	}
}

func TestEnvironmentIsRestricted(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
	t.Setenv("WANTED", "yes")
	t.Setenv("LC_TIME", "C")
	s := spec("scripted", "OWN=1")
	s.EnvAllowlist = []string{"WANTED", "ABSENT"}
	var got []string
	if err := json.Unmarshal([]byte(ask(t, start(t, s, usual, nil), 1, "environment", "null")), &got); err != nil {
		t.Fatal(err)
	}
	for _, e := range got {
		name, _, _ := strings.Cut(e, "=")
		known := baselineUnix[name] || baselineWindows[strings.ToUpper(name)] || strings.HasPrefix(name, "LC_")
		if !known && !slices.Contains([]string{"OWN=1", "WANTED=yes", "TEST_ROLE=scripted", "GORACE=" + quickExit}, e) {
			t.Errorf("the child has %s", e)
		}
	}
	for _, e := range []string{"OWN=1", "WANTED=yes", "LC_TIME=C", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(got, e) {
			t.Errorf("the child lacks %s, it has %q", e, got)
		}
	}
}

func TestEndOfProcess(t *testing.T) {
	for _, tt := range []struct {
		name, method, params string
		spawn                bool // a worker first
		code                 int
		unanswered           bool
	}{
		{name: "clean exit", method: "exit", params: "0", code: 0, unanswered: true},
		{name: "exit code", method: "exit", params: "3", code: 3, unanswered: true},
		{name: "signal", method: "suicide", params: "0", code: -9, unanswered: true},
		{name: "answers before the end arrive", method: "answer and exit", params: "0", code: 7},
		{name: "a grandchild holds the pipes", method: "exit", params: "4", spawn: true, code: 4, unanswered: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, spec("scripted"), impatient, nil)
			if tt.spawn {
				ask(t, w, 1, "spawn", "0")
			}
			ctx, cancel := context.WithTimeout(t.Context(), eventually)
			defer cancel()
			begin := time.Now()
			m, err := w.request(ctx, message(2, tt.method, tt.params))
			waitFor(t, w.done(), "the end of the wire")
			if took := time.Since(begin); took > 5*time.Second { // 1 s on a machine that is not busy
				t.Errorf("noticed after %v", took)
			}
			var lost *wireError
			var exit *exitError
			switch {
			case tt.unanswered && !(errors.As(err, &lost) && lost.sent && errors.As(err, &exit) && exit.code == tt.code):
				t.Errorf("request: got %v, want a sent wireError with exit code %d", err, tt.code)
			case !tt.unanswered && (err != nil || string(m.Result) != "7"):
				t.Errorf("request: got %s, %v, want 7", m.Result, err)
			}
			if got := w.vitals().stderr; tt.method == "exit" && !slices.Equal(got, []string{"last words"}) {
				t.Errorf("stderr: got %q, want its last words", got)
			}
			if v := w.vitals(); v.exitCode == nil || *v.exitCode != tt.code || !errors.As(v.lastErr, &exit) {
				t.Errorf("vitals: got exit code %v, error %v", v.exitCode, v.lastErr)
			}
			if _, err := w.request(ctx, message(3, "echo", "1")); !errors.As(err, &lost) || lost.sent {
				t.Errorf("later request: got %v, want a wireError that was not sent", err)
			}
			if err := w.send(ctx, []byte(`{"method":"x"}`)); !errors.As(err, &lost) || lost.sent {
				t.Errorf("later notification: got %v, want a wireError that was not sent", err)
			}
			waitFor(t, w.gone, "the end of all that was left")
		})
	}
}

func TestClosedPipesAreTheEnd(t *testing.T) {
	for _, method := range []string{"close stdout", "close stdin"} {
		t.Run(method, func(t *testing.T) {
			w := start(t, spec("stubborn"), impatient, nil)
			ctx, cancel := context.WithTimeout(t.Context(), eventually)
			defer cancel()
			go w.request(ctx, message(1, method, "0"))
			for i := int64(2); ; i++ { // the end of stdin shows only to who writes
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				_, err := w.request(short, message(i, "silence", "0"))
				cancel()
				var lost *wireError
				if errors.As(err, &lost) {
					break
				}
				if ctx.Err() != nil {
					t.Fatal("the wire lives on")
				}
			}
			waitFor(t, w.gone, "the end of the process")
		})
	}
}

func TestEndlessLine(t *testing.T) {
	w := start(t, spec("endless"), impatient, nil)
	waitFor(t, w.done(), "the end of the wire")
	err := w.vitals().lastErr
	if !errors.Is(err, jsonrpc.ErrLineTooLong) {
		t.Fatalf("got %v, want %v", err, jsonrpc.ErrLineTooLong)
	}
	for _, want := range []string{"endless", strconv.Itoa(lineMax), strconv.Itoa(lineLimit)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	waitFor(t, w.gone, "the end of the process")
}

func TestHalfLineThenSilence(t *testing.T) {
	w := start(t, spec("scripted"), impatient, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.request(ctx, message(1, "raw", `"{\"id\":ID,\"res"`))
	if err != context.DeadlineExceeded {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	select {
	case <-w.done():
		t.Errorf("the wire is dead: %v", w.vitals().lastErr)
	default:
	}
}

func TestLateAnswerIsDropped(t *testing.T) {
	w := start(t, spec("scripted"), usual, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.request(ctx, message(1, "echo", "1")); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	ask(t, w, 2, "raw", `"{\"id\":1,\"result\":\"late\"}\n{\"id\":ID,\"result\":2}\n"`)
}

func TestServerThatDoesNotRead(t *testing.T) {
	p := impatient
	p.stall = time.Second
	w := start(t, spec("deaf"), p, nil)
	big := `"` + strings.Repeat("b", 1<<20) + `"`
	results := make(chan error, 3)
	go func() { // fills the pipe and is still under way when its ctx ends
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := w.request(ctx, message(1, "echo", big))
		results <- err
	}()
	if err := <-results; err != context.DeadlineExceeded {
		t.Errorf("a write under way: got %v, want %v", err, context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.send(ctx, []byte(`{"method":"x"}`)); err != context.DeadlineExceeded {
		t.Errorf("a notification behind it: got %v, want %v", err, context.DeadlineExceeded)
	}
	_, err := w.request(t.Context(), message(2, "echo", "1")) // waits until the wire breaks
	var lost *wireError
	if !errors.As(err, &lost) || lost.sent || !strings.Contains(err.Error(), "has not read its stdin") {
		t.Errorf("a request behind it: got %v, want a wireError that was not sent", err)
	}
	waitFor(t, w.gone, "the end of the process")
}

func TestPartlyWrittenCountsAsSent(t *testing.T) {
	w := start(t, spec("deaf"), impatient, nil)
	_, err := w.request(t.Context(), message(1, "echo", `"`+strings.Repeat("b", 1<<20)+`"`))
	var lost *wireError
	if !errors.As(err, &lost) || !lost.sent {
		t.Errorf("got %v, want a wireError that was sent", err)
	}
}

func TestSlowReaderIsNoStall(t *testing.T) {
	r, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	o := newOutbox(to, 200*time.Millisecond)
	sent := make(chan error, 1)
	go func() {
		_, err := o.push(make([]byte, 1<<20))
		sent <- err
	}()
	buf := make([]byte, 64<<10)
	for tick := time.NewTicker(40 * time.Millisecond); ; <-tick.C { // 640 ms in all
		select {
		case err := <-sent:
			if err != nil {
				t.Errorf("got %v, want no error", err)
			}
			return
		default:
		}
		if _, err := r.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClose(t *testing.T) {
	for _, tt := range []struct {
		name, role string
		spawn      bool
		atLeast    time.Duration
	}{
		{"well-behaved", "scripted", false, 0},
		{"a worker stays in the group", "scripted", true, impatient.eof + impatient.term},
		{"ignores all", "stubborn", false, impatient.eof + impatient.term},
		{"does not read", "deaf", false, impatient.eof},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, spec(tt.role), impatient, nil)
			if tt.role != "deaf" {
				ask(t, w, 1, "echo", "1")
			}
			if tt.spawn {
				ask(t, w, 2, "spawn", "0")
			}
			begin := time.Now()
			if err := w.close(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took < tt.atLeast {
				t.Errorf("took %v, want at least %v", took, tt.atLeast)
			}
			if w.child.alive() {
				t.Error("something is left")
			}
			if v := w.vitals(); !errors.Is(v.lastErr, errClosed) || v.exitCode == nil {
				t.Errorf("vitals: got exit code %v, error %v", v.exitCode, v.lastErr)
			}
			if err := w.close(t.Context()); err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

func TestCloseInAHurry(t *testing.T) {
	patient := patience{drain: time.Second, eof: time.Hour, term: time.Hour, kill: eventually, stall: time.Hour}
	w := start(t, spec("stubborn"), patient, nil)
	ask(t, w, 1, "echo", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.close(ctx); err != nil {
		t.Error(err)
	}
	if w.child.alive() {
		t.Error("it is still there")
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			w := start(b, spec("mirror"), usual, nil)
			params := `"` + strings.Repeat("e", size-40) + `"`
			id := int64(0)
			for b.Loop() {
				id++
				if _, err := w.request(b.Context(), message(id, "echo", params)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func init() {
	roles["mirror"] = func() { // the cheapest server that answers: its answers show the wire's own time
		lines, out := jsonrpc.NewLines(os.Stdin, lineMax), []byte(nil)
		for {
			line, err := lines.ReadLine()
			if err != nil {
				return
			}
			m, _ := jsonrpc.Parse(line)
			out = append(jsonrpc.AppendResult(out[:0], m.ID, m.Params), '\n')
			_, _ = os.Stdout.Write(out)
		}
	}
}
