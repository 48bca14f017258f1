package proxy

import (
	"sync"
	"time"
)

// Kind is the name of an event; the names are fixed for readers outside.
type Kind string

const (
	ServersChanged Kind = "mcp_servers_changed"
	StatusChanged  Kind = "mcp_server_status_changed"
	AuthRequest    Kind = "mcp_auth_request"
	AuthUpdate     Kind = "mcp_auth_update"
	CallStart      Kind = "mcp_call_start"
	CallUpdate     Kind = "mcp_call_update"
	CallEnd        Kind = "mcp_call_end"
)

// Event is one line of the journal: something happened; the truth is in the Snapshot.
type Event struct {
	Seq    uint64    `json:"seq"` // from 1, without gaps
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	Server string    `json:"server,omitempty"`
	Call   *CallInfo `json:"call,omitempty"`
}

// CallInfo is one call as recent-call lists and the journal show it: never its arguments or its result.
type CallInfo struct {
	ID         string    `json:"id"`
	Timestamp  time.Time `json:"timestamp"`
	Server     string    `json:"server"`
	Tool       string    `json:"tool"`
	Risk       string    `json:"risk"`
	Status     string    `json:"status"` // started, completed, failed, cancelled
	Code       string    `json:"code,omitempty"`
	DurationMs int64     `json:"durationMs,omitempty"`
	Bytes      int       `json:"outputBytes,omitempty"`
	Truncated  bool      `json:"truncated,omitempty"`
}

const (
	journalSize = 1024
	recentSize  = 100
)

// Journal is a ring of numbered events and the recent calls. Whoever reads it misses nothing but what the ring has
// dropped, and is told so.
type Journal struct {
	mu     sync.Mutex
	seq    uint64
	ring   [journalSize]Event
	recent []CallInfo    // finished calls, oldest first
	wake   chan struct{} // closed and replaced at every event
}

func newJournal() *Journal { return &Journal{wake: make(chan struct{})} }

func (j *Journal) add(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Seq, e.Time = j.seq, time.Now()
	j.ring[j.seq%journalSize] = e
	if e.Kind == CallEnd {
		if j.recent = append(j.recent, *e.Call); len(j.recent) > 2*recentSize {
			j.recent = append([]CallInfo(nil), j.recent[recentSize:]...)
		}
	}
	close(j.wake)
	j.wake = make(chan struct{})
}

// Since returns the events after seq, oldest first, and a channel that is closed at the next one. reset tells that
// events in between are gone: read the current state anew.
func (j *Journal) Since(seq uint64) (events []Event, reset bool, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if seq > j.seq {
		seq, reset = j.seq, true
	}
	if j.seq-seq > journalSize {
		seq, reset = j.seq-journalSize, true
	}
	for s := seq + 1; s <= j.seq; s++ {
		events = append(events, j.ring[s%journalSize])
	}
	return events, reset, j.wake
}

// Recent are the last finished calls to a server (to all when it is ""), newest first, at most n.
func (j *Journal) Recent(server string, n int) []CallInfo {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []CallInfo{}
	for i := len(j.recent) - 1; i >= 0 && len(out) < min(n, recentSize); i-- {
		if server == "" || j.recent[i].Server == server {
			out = append(out, j.recent[i])
		}
	}
	return out
}
