package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

const (
	outboxLength = 256      // messages that wait for a busy writer
	outboxBatch  = 64 << 10 // bytes that are written at once
)

// outbox is the way to a child's stdin. One goroutine writes, many small messages at once when they have gathered; only
// it waits for a child that does not read.
type outbox struct {
	to    *os.File
	stall time.Duration
	queue chan *parcel
	stop  chan struct{} // no more is written; closing to ends a write under way
	done  chan struct{} // the state of every parcel is final
	buf   []byte
}

// parcel is a message on its way. It is withdrawn, or taken and then wholly or partly written, or not at all.
type parcel struct {
	body    []byte // belongs to the outbox once it is in the queue
	state   atomic.Int32
	written chan struct{} // closed when written; nil when nobody waits for that
}

const (
	queued int32 = iota
	withdrawn
	taken
	unsent // taken, but not a byte was written
)

// withdraw tells whether the parcel had not been taken; then it never will be.
func (p *parcel) withdraw() bool { return p.state.CompareAndSwap(queued, withdrawn) }

func newOutbox(to *os.File, stall time.Duration) outbox {
	return outbox{
		to: to, stall: stall,
		queue: make(chan *parcel, outboxLength), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// sent tells, after the end of the wire, whether any part of a parcel may have reached the child.
func (o *outbox) sent(ctx context.Context, p *parcel) bool {
	if p.withdraw() {
		return false
	}
	select {
	case <-o.done:
	case <-ctx.Done():
	}
	s := p.state.Load()
	return s != unsent && s != withdrawn
}

// write is the writer goroutine. It ends when stop is closed, or with an error after which the stream is of no use.
func (w *stdioWire) write() {
	o := &w.out
	defer close(o.done)
	for {
		select {
		case <-o.stop:
			return
		case p := <-o.queue:
			if err := o.batch(p); err != nil {
				w.broken <- fmt.Errorf("%s: %w", w.server, err)
				return
			}
		}
	}
}

// batch writes p and what else is in the queue, up to about outboxBatch bytes.
func (o *outbox) batch(p *parcel) error {
	o.buf = o.buf[:0]
	var batch []*parcel
	var ends []int // where each of batch ends
	for more := true; more; {
		if p.state.CompareAndSwap(queued, taken) {
			batch = append(batch, p)
			if len(p.body) > outboxBatch { // not copied
				break
			}
			o.buf = append(append(o.buf, p.body...), '\n')
			ends = append(ends, len(o.buf))
		}
		if more = len(o.buf) < outboxBatch; more {
			select {
			case p = <-o.queue:
			default:
				more = false
			}
		}
	}
	n, err := o.push(o.buf)
	big := 0 // the last, not in buf
	if err == nil && len(batch) > len(ends) {
		if big, err = o.push(batch[len(ends)].body); err == nil {
			_, err = o.push([]byte{'\n'})
		}
	}
	for i, p := range batch {
		wrote, whole := big, err == nil
		if i < len(ends) {
			wrote, whole = n-(ends[i]-len(p.body)-1), n >= ends[i]
		}
		switch {
		case whole && p.written != nil:
			close(p.written)
		case wrote <= 0:
			p.state.Store(unsent)
		}
	}
	return err
}

// push writes all of b, however slowly it is read as long as there is progress.
func (o *outbox) push(b []byte) (int, error) {
	for total := 0; ; {
		if total == len(b) {
			return total, nil
		}
		_ = o.to.SetWriteDeadline(time.Now().Add(o.stall)) // pipes of Windows have no deadlines: callers' own then count
		n, err := o.to.Write(b[total:])
		total += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && n > 0:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return total, fmt.Errorf("it has not read its stdin for %v", o.stall)
		case err != nil:
			return total, fmt.Errorf("write to its stdin: %w", err)
		}
	}
}
