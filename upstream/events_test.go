package upstream

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// allEvents reads a stream to its end: "kind:data" of each event, and the error if it is not EOF.
func allEvents(r io.Reader) (got []string, ev *events, err error) {
	ev = newEvents(r, lineMax)
	for {
		e, err := ev.next()
		if err == io.EOF {
			return got, ev, nil
		}
		if err != nil {
			return got, ev, err
		}
		got = append(got, e.kind+":"+string(e.data))
	}
}

func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		lastID   string
		retry    time.Duration
	}{
		{name: "empty"},
		{name: "one", in: "data: a\n\n", want: []string{":a"}},
		{name: "CRLF", in: "event: message\r\ndata: a\r\n\r\ndata: b\r\n\r\n", want: []string{"message:a", ":b"}},
		{name: "CR", in: "data: a\r\rdata: b\r\r", want: []string{":a", ":b"}},
		{name: "mixed ends", in: "data: a\ndata: b\r\ndata: c\r\n\ndata: d\n\n", want: []string{":a\nb\nc", ":d"}},
		{name: "byte order mark", in: "\xef\xbb\xbfdata: a\n\ndata: b\n\n", want: []string{":a", ":b"}},
		{name: "no byte order mark", in: "data: a\n\n\xef\xbb\xbfdata: b\n\n", want: []string{":a"}},
		{name: "no space", in: "data:a\n\ndata:  b\n\n", want: []string{":a", ": b"}},
		{name: "several lines", in: "data: {\ndata:  1\ndata: }\n\n", want: []string{":{\n 1\n}"}},
		{name: "comments", in: ": hello\n:\n\ndata: a\n: between\ndata: b\n\n:\n\n", want: []string{":a\nb"}},
		{name: "unknown fields", in: "dat: x\ndata\nfoo\n\n", want: []string{":"}},
		{name: "no data", in: "event: ping\n\ndata: a\n\n", want: []string{":a"}},
		{name: "ids", in: "id: 1\ndata: a\n\nid: 2\n\ndata: c\n\n", want: []string{":a", ":c"}, lastID: "2"},
		{name: "id taken back", in: "id: 1\ndata: a\n\nid\ndata: b\n\n", want: []string{":a", ":b"}},
		{name: "id with NUL", in: "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", want: []string{":a", ":b"}, lastID: "1"},
		{name: "only an id", in: "id: 1\ndata:\n\n", want: []string{":"}, lastID: "1"},
		{name: "retry", in: "retry: 1500\n\nretry: -1\nretry: 1s\n\n", retry: 1500 * time.Millisecond},
		{name: "cut off", in: "id: 1\ndata: a\n\nid: 2\ndata: b\n", want: []string{":a", ":b"}, lastID: "1"},
		{name: "cut off in a line", in: "data: a\n\ndata: b", want: []string{":a", ":b"}},
		{name: "cut off before data", in: "data: a\n\nid: 2", want: []string{":a"}},
		{name: "colons in data", in: "data: a:b: c\n\n", want: []string{":a:b: c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":        strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
			} {
				got, ev, err := allEvents(r)
				if err != nil || !slices.Equal(got, tt.want) || ev.lastID != tt.lastID || ev.retry != tt.retry {
					t.Errorf("%s: got %q, id %q, retry %v, %v; want %q, id %q, retry %v",
						how, got, ev.lastID, ev.retry, err, tt.want, tt.lastID, tt.retry)
				}
			}
		})
	}
}

// An event is there when its last line has ended, even if that was a CR after which nothing comes.
func TestEventsWaitForNothing(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "data: a"+end) }()
		if e, err := newEvents(r, lineMax).next(); string(e.data) != "a" || err != nil {
			t.Errorf("after %q: got %q, %v", end, e.data, err)
		}
		r.Close()
	}
}

func TestEventsKeepTheirMemory(t *testing.T) {
	ev := newEvents(strings.NewReader("data: first\n\ndata: other\n\n"), lineMax)
	a, _ := ev.next()
	if _, _ = ev.next(); string(a.data) != "first" {
		t.Errorf("got %q", a.data)
	}
}

func TestLargeEvents(t *testing.T) {
	for _, n := range []int{4085, 4096, 64 << 10, 2_100_000, 5_000_000} {
		data := bytes.Repeat([]byte("0123456789"), n/10)
		got, _, err := allEvents(io.MultiReader(strings.NewReader("data: "), bytes.NewReader(data), strings.NewReader("\n\n")))
		if err != nil || len(got) != 1 || got[0] != ":"+string(data) {
			t.Errorf("%d bytes: got %d events, %v", n, len(got), err)
		}
	}
}

func TestEventsTooLarge(t *testing.T) {
	const limit = 1 << 20
	line := strings.Repeat("x", limit)
	for _, tt := range []struct {
		name string
		in   io.Reader
		want bool
	}{
		{"as large as it may be", strings.NewReader("data:" + line[:limit-5] + "\n\n"), false},
		{"a line", strings.NewReader("data:" + line + "\n\n"), true},
		{"a line without end", endless(line), true},
		{"lines without end", endless("data: " + line[:1000] + "\n"), true},
		{"empty lines of data without end", endless("data\n"), true},
	} {
		_, err := newEvents(tt.in, limit).next()
		var large *tooLargeError
		if errors.As(err, &large) != tt.want || tt.want && err.Error() != "a message of more than the limit of 1048576 bytes" {
			t.Errorf("%s: got %v, want an error: %v", tt.name, err, tt.want)
		}
	}
}

// endless repeats a text for ever.
func endless(text string) io.Reader { return &repeat{text: text} }

type repeat struct {
	text string
	rest string
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest = r.text
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestEventsProceed(t *testing.T) {
	_, ev, _ := allEvents(strings.NewReader("id: 7\nretry: 20\ndata: a\n\nid: 8\ndata: b\r"))
	ev.proceed(strings.NewReader("\ndata: c\n\n"))
	e, err := ev.next()
	if err != nil || string(e.data) != "c" || ev.lastID != "7" || ev.retry != 20*time.Millisecond {
		t.Errorf("got %q, %v, id %q, retry %v", e.data, err, ev.lastID, ev.retry)
	}
}
