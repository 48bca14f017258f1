package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Record is one thing that a server has received, or that has happened to it.
type Record struct {
	Time   time.Time
	Event  string      `json:",omitempty"` // of a child: "start", "grandchild", "eof", "exit"; "" for what was received
	PID    int         `json:",omitempty"` // with Event: of the process it is about
	Method string      `json:",omitempty"` // JSON-RPC method; "" of a response
	Text   string      `json:",omitempty"` // the JSON-RPC message byte for byte
	HTTP   string      `json:",omitempty"` // HTTP method
	Path   string      `json:",omitempty"` // with the query
	Header http.Header `json:",omitempty"`
}

// Message is the received message; it panics when there is none.
func (r Record) Message() jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(r.Text))
	if err != nil {
		panic(fmt.Sprintf("fake: record holds no message: %v: %q", err, r.Text))
	}
	return m
}

// Records are all records so far.
func (s *Server) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// Received are the records with that JSON-RPC method.
func (s *Server) Received(method string) []Record { return Select(s.Records(), method) }

// Wait returns when at least n messages of that method have been received, or with an error that lists what was.
func (s *Server) Wait(ctx context.Context, method string, n int) error {
	for {
		s.mu.Lock()
		more, records := s.recorded, s.records
		s.mu.Unlock()
		if len(Select(records, method)) >= n {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d × %s: %w; received: %v", n, method, ctx.Err(), Methods(records))
		}
	}
}

// Select are the records with that JSON-RPC method.
func Select(records []Record, method string) []Record {
	var found []Record
	for _, r := range records {
		if r.Method == method && r.Event == "" {
			found = append(found, r)
		}
	}
	return found
}

// Methods are the JSON-RPC methods of the messages, in order; "" is a response, and what is no message is left out.
func Methods(records []Record) []string {
	var names []string
	for _, r := range records {
		if r.Text != "" {
			names = append(names, r.Method)
		}
	}
	return names
}

// ReadRecords reads a Script.Record file. A file that is not there yet is empty.
func ReadRecords(file string) ([]Record, error) {
	b, err := os.ReadFile(filepath.Clean(file))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var records []Record
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return records, fmt.Errorf("%s: line %d: %w", file, len(records)+1, err)
		}
		records = append(records, r)
	}
	return records, err
}

// WaitRecords reads a Script.Record file until enough holds of its records, and returns them.
func WaitRecords(ctx context.Context, file string, enough func([]Record) bool) ([]Record, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		records, err := ReadRecords(file)
		if err != nil || enough(records) {
			return records, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return records, fmt.Errorf("%s: wait for records: %w; received: %v", file, ctx.Err(), Methods(records))
		}
	}
}

func (s *Server) record(r Record) {
	r.Time = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	close(s.recorded)
	s.recorded = make(chan struct{})
	if s.script.Record == "" {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(s.script.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(fmt.Sprintf("fake: record: %v", err))
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil { // one write: several processes may share the file
		panic(fmt.Sprintf("fake: record: %v", err))
	}
}
