package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

func keepAlive(s *configs.Server) { s.Lifecycle = configs.KeepAlive }

func TestCallersShareOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.set(nil, 3*time.Second)
		var all sync.WaitGroup
		for range 100 {
			all.Go(r.mustCall)
		}
		time.Sleep(time.Second)
		r.want(Connecting)
		all.Wait()
		if r.dials() != 1 || r.count("initialize") != 1 || r.count("notifications/initialized") != 1 || r.count("tools/call") != 100 {
			t.Errorf("%d dials, sent %v", r.dials(), r.methods())
		}
		r.want(Ready)
		if st := r.srv.State(); st.ProtocolVersion != "2025-11-25" || st.PID != 4711 || st.Starts != 1 || st.Leases != 0 || st.Failure != nil {
			t.Errorf("state: %+v", st)
		}
	})
}

func TestIdleBeginsWhenTheLastLeaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.want(Cold)
		if r.dials() != 0 {
			t.Fatalf("a lazy server was started before its first use")
		}
		held := make(chan struct{})
		go r.srv.Do(t.Context(), func(context.Context, *Conn) error { <-held; return nil })
		after(time.Hour)
		r.want(Ready)
		if got := r.srv.State().Leases; got != 1 {
			t.Errorf("%d leases, want 1", got)
		}
		close(held)
		after(10*time.Minute - time.Second)
		r.want(Ready)
		after(2 * time.Second)
		r.want(Cold)
		if !r.last().isClosed() {
			t.Error("the connection was not closed")
		}
		r.mustCall()
		if r.dials() != 2 {
			t.Errorf("%d dials, want 2", r.dials())
		}
	})
}

func TestCallerThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.set(nil, 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		after(10 * time.Second)
		r.want(Ready) // the attempt goes on
		if got := r.srv.State().Leases; got != 0 {
			t.Errorf("%d leases, want 0", got)
		}
		after(11 * time.Minute)
		r.want(Cold)
	})
}

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		fails int
		r     float64
		want  time.Duration
	}{
		{0, 0.5, 0},
		{1, 0, 500 * time.Millisecond}, {1, 1, 625 * time.Millisecond},
		{2, 0, time.Second}, {5, 0, 8 * time.Second}, {7, 0, 32 * time.Second}, {7, 1, 40 * time.Second},
		{8, 0, time.Minute}, {8, 1, time.Minute}, {1000, 0.5, time.Minute},
	} {
		if got := backoff(tt.fails, tt.r); got != tt.want {
			t.Errorf("backoff(%d, %v) = %v, want %v", tt.fails, tt.r, got, tt.want)
		}
	}
}

// A server that can't start, and one that dies soon after each start, are not started faster and faster by eager callers.
func TestCrashLoops(t *testing.T) {
	dies := func(delay time.Duration) func(w *fakeWire, q request) spoken {
		return func(w *fakeWire, q request) spoken {
			if q.Method == "server/discover" && delay == 0 || q.Method == "initialize" {
				if delay == 0 {
					w.die(3)
					return spoken{silent: true}
				}
				time.AfterFunc(delay, func() { w.die(3) })
			}
			return spoken{}
		}
	}
	for name, answer := range map[string]func(w *fakeWire, q request) spoken{"at once": dies(0), "after a second": dies(time.Second)} {
		for _, change := range []func(*configs.Server){nil, keepAlive} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, lazy(change), answer)
					defer r.close()
					var last error
					for range 600 {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						last = r.call(ctx)
						cancel()
						time.Sleep(100 * time.Millisecond)
					}
					if n := r.dials(); n > 9 || n < 5 {
						t.Errorf("%d starts in a minute, want at most 9", n)
					}
					r.mu.Lock()
					gap := time.Duration(0)
					for i := 2; i < len(r.dialed); i++ {
						d := r.dialed[i].Sub(r.dialed[i-1])
						if d < gap/2 {
							t.Errorf("start %d came %v after the one before, and that one after %v", i, d, gap)
						}
						gap = d
					}
					r.mu.Unlock()
					var f *Failure
					if !errors.As(last, &f) || f.ExitCode == nil || *f.ExitCode != 3 || f.Retry.Before(time.Now()) {
						t.Fatalf("got %+v", last)
					}
					if st := r.srv.State(); st.Status != Errored || !st.NextTry.Equal(f.Retry) || st.Failure != f {
						t.Errorf("state %+v", st)
					}
					if want := []string{"starting", "token [redacted] refused"}; len(f.Stderr) != 2 || f.Stderr[1] != want[1] {
						t.Errorf("stderr %q, want %q", f.Stderr, want)
					}
				})
			})
		}
	}
}

func TestHealthyTimeEndsARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(keepAlive), nil)
		defer r.close()
		r.want(Ready)
		r.set(&startError{stage: Spawn, msg: "no more processes"}, 0)
		r.last().die(1)
		after(time.Minute)
		r.want(Errored)
		r.set(nil, 0)
		after(time.Minute)
		r.want(Ready)
		before := r.dials()
		r.last().die(1)
		after(0)
		r.want(Ready)
		if got := r.dials(); got != before+1 {
			t.Errorf("%d dials, want %d: after a minute of health the first loss costs no wait", got, before+1)
		}
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(keepAlive), nil)
		defer r.close()
		r.want(Ready)
		after(24 * time.Hour)
		r.want(Ready)
		if r.dials() != 1 || r.count("initialize") != 1 {
			t.Errorf("%d dials, %d initialize in a day of health", r.dials(), r.count("initialize"))
		}
		if n := r.count("ping"); n < 17000 || n > 17400 {
			t.Errorf("%d pings in a day", n)
		}
		r.last().die(-9)
		after(time.Second)
		r.want(Ready)
		r.mustCall()
		if err := r.srv.Disconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		r.want(Disconnected)
		r.mustCall()
		r.want(Ready)
	})
}

func TestCleanExitAfterServedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		for range 20 {
			r.mustCall()
			synctest.Wait()
			r.last().die(0)
			r.want(Cold)
			if f := r.srv.State().Failure; f != nil {
				t.Fatalf("failure %v", f)
			}
		}
		if r.dials() != 20 {
			t.Errorf("%d dials, want 20", r.dials())
		}
	})
}

func TestDeathInMidCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
			if q.Method == "tools/call" {
				if calls++; calls == 1 {
					time.Sleep(time.Second)
					w.die(-11)
					return spoken{silent: true}
				}
			}
			return spoken{}
		})
		defer r.close()
		began := time.Now()
		err := r.call(t.Context())
		var lost *LostError
		if !errors.As(err, &lost) || !lost.Sent || time.Since(began) != time.Second {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		r.mustCall()
		if calls != 2 || r.dials() != 2 {
			t.Errorf("%d calls, %d dials", calls, r.dials())
		}
	})
}

// A process that hangs is found by ping, spoken to be in error soon, and replaced after 30 s without a sign of life.
func TestHungProcess(t *testing.T) {
	var hang atomic.Bool
	answer := func(w *fakeWire, q request) spoken { return spoken{silent: hang.Load() && w.fake.dials() == 1} }
	for name, change := range map[string]func(*configs.Server){"lazy": nil, "keep-alive": keepAlive} {
		t.Run(name, func(t *testing.T) {
			hang.Store(false)
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lazy(change), answer)
				defer r.close()
				r.mustCall()
				after(time.Minute)
				r.want(Ready)
				hang.Store(true)
				if change != nil {
					after(10 * time.Second)
					r.want(Errored)
				}
				after(30*time.Second + time.Millisecond)
				first := r.wires[0]
				if !first.isClosed() || !first.hurried {
					t.Fatalf("closed %v, at once %v", first.isClosed(), first.hurried)
				}
				r.mustCall()
				r.want(Ready)
			})
		})
	}
	t.Run("a call wakes it", func(t *testing.T) {
		hang.Store(false)
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lazy(nil), answer)
			defer r.close()
			r.mustCall()
			after(64 * time.Second)
			hang.Store(true)
			began := time.Now()
			r.mustCall()
			if took := time.Since(began); took > 30*time.Second || r.dials() != 2 || r.count("tools/call") != 2 {
				t.Errorf("took %v, %d dials, %d calls", took, r.dials(), r.count("tools/call"))
			}
		})
	})
	t.Run("busy with a call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var busy atomic.Bool
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/call" && string(q.Params) != "" {
					busy.Store(true)
					time.Sleep(5 * time.Minute)
					busy.Store(false)
				}
				return spoken{silent: busy.Load()}
			})
			defer r.close()
			r.mustCall()
			if r.dials() != 1 {
				t.Errorf("%d dials", r.dials())
			}
		})
	})
	t.Run("knows no ping", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lazy(keepAlive), func(w *fakeWire, q request) spoken { return spoken{silent: q.Method == "ping"} })
			defer r.close()
			after(time.Hour)
			r.want(Ready)
			if r.dials() != 1 {
				t.Errorf("%d dials", r.dials())
			}
		})
	})
}

// What goes wrong with a keep-alive server over HTTP shows within ten seconds.
func TestRemoteOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		r := newRig(t, lazy(func(s *configs.Server) { keepAlive(s); overHTTP(s) }), func(*fakeWire, request) spoken {
			if down.Load() {
				return spoken{err: &wireError{err: errors.New("connection refused")}}
			}
			return spoken{}
		})
		defer r.close()
		r.want(Ready)
		after(time.Minute)
		down.Store(true)
		after(10 * time.Second)
		r.want(Errored)
		if f := r.srv.State().Failure; f.Stage != Spawn {
			t.Errorf("got %v", f)
		}
		down.Store(false)
		after(time.Minute)
		r.want(Ready)
	})
}

func TestReload(t *testing.T) {
	slow := func(w *fakeWire, q request) spoken {
		if q.Method == "tools/call" {
			time.Sleep(time.Minute)
		}
		return spoken{}
	}
	bubble(t, map[string]func(*testing.T){
		"equal": func(t *testing.T) {
			r := newRig(t, lazy(nil), slow)
			defer r.close()
			go r.mustCall()
			after(time.Second)
			before := r.srv
			r.apply(lazy(func(s *configs.Server) { s.Limits.IdleTimeout = time.Minute; s.ExcludeTools = []string{"x"} }))
			if r.srv != before || len(r.srv.Config().ExcludeTools) != 1 {
				t.Error("a server of the same hash was made anew, or kept its old filters")
			}
			after(59*time.Second + 30*time.Second)
			r.want(Ready)
			after(31 * time.Second)
			r.want(Cold) // by the idle timeout of the second configuration
			if r.dials() != 1 {
				t.Errorf("%d dials, want 1", r.dials())
			}
		},
		"different": func(t *testing.T) {
			r := newRig(t, lazy(nil), slow)
			defer r.close()
			old := r.srv
			var err error
			go func() { err = r.call(t.Context()) }()
			after(time.Second)
			r.apply(lazy(func(s *configs.Server) { s.Hash = "sha256:2"; s.Lifecycle = configs.Eager }))
			r.want(Ready)
			if r.srv == old || r.dials() != 2 || r.wires[0].isClosed() {
				t.Fatalf("%d dials, old connection closed: %v", r.dials(), r.wires[0].isClosed())
			}
			after(time.Minute)
			if err != nil || !r.wires[0].isClosed() || !old.ended() {
				t.Errorf("the call in flight: %v; old connection closed: %v", err, r.wires[0].isClosed())
			}
			var f *Failure
			if err := old.Do(t.Context(), nil); !errors.As(err, &f) {
				t.Errorf("got %v", err)
			}
		},
		"removed": func(t *testing.T) {
			r := newRig(t, lazy(nil), nil)
			defer r.close()
			r.mustCall()
			r.pool.Apply([]*configs.Server{
				lazy(func(s *configs.Server) { s.Enabled = false }),
				lazy(func(s *configs.Server) { s.ID = "other"; s.Err = &configs.Diagnostic{} }),
			})
			synctest.Wait()
			if _, ok := r.pool.Server("fake"); ok || len(r.pool.Servers()) != 0 || !r.last().isClosed() {
				t.Errorf("servers %v, closed %v", r.pool.Servers(), r.last().isClosed())
			}
		},
	})
}

func TestDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		held := make(chan struct{})
		go r.srv.Do(t.Context(), func(context.Context, *Conn) error { <-held; return nil })
		synctest.Wait()
		ended := make(chan error)
		go func() { ended <- r.srv.Disconnect(t.Context()) }()
		r.want(Disconnecting)
		if r.last().isClosed() {
			t.Fatal("a lease was cut")
		}
		close(held)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		r.want(Disconnected)
		r.mustCall()
		r.want(Ready)

		if err := r.srv.Disconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.set(nil, time.Minute)
		failed := make(chan error)
		go func() { failed <- r.call(t.Context()) }()
		after(time.Second)
		if err := r.srv.Disconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		var f *Failure
		if err := <-failed; !errors.As(err, &f) {
			t.Errorf("a call that waits for a connection: %v", err)
		}
	})
}

func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken { return spoken{silent: q.Method == "tools/call"} })
		var err error
		go func() { err = r.call(t.Context()) }()
		after(time.Second)
		r.close()
		synctest.Wait()
		if !errors.As(err, new(*LostError)) || !r.last().isClosed() {
			t.Errorf("call: %v; closed %v", err, r.last().isClosed())
		}
		if err := r.call(t.Context()); !errors.As(err, new(*Failure)) {
			t.Errorf("a call after Close: %v", err)
		}
		r.pool.Apply([]*configs.Server{lazy(nil)})
		if len(r.pool.Servers()) != 0 {
			t.Error("Apply after Close made a server")
		}
	})
}

func TestDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
			if q.Method == "tools/list" && w.spec.ID == "broken" {
				return rpcError(-32603, "fetch failed")
			}
			return spoken{}
		})
		defer r.close()
		var specs []*configs.Server
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "broken"} {
			specs = append(specs, lazy(func(s *configs.Server) { s.ID = id; s.Hash = "sha256:" + id }))
		}
		r.pool.Apply(specs)
		r.set(nil, time.Second)
		go r.pool.Discover(t.Context())
		time.Sleep(time.Second / 2)
		synctest.Wait()
		states := map[Status]int{}
		for _, s := range r.pool.Servers() {
			states[s.State().Status]++
		}
		if states[Discovering] != 4 || states[Cold] != 3 {
			t.Errorf("states %v, want 4 discovering", states)
		}
		after(3 * time.Second)
		for _, s := range r.pool.Servers() {
			st := s.State()
			if bad := s.ID() == "broken"; st.Status != Cold || (st.Failure != nil) != bad || (s.known() == nil) != bad {
				t.Errorf("%s: %+v, listing %+v", s.ID(), st, s.known())
			}
		}
		for _, w := range r.wires {
			if !w.isClosed() {
				t.Errorf("the connection to %s is still there", w.spec.ID)
			}
		}
		r.pool.Discover(t.Context())
		if r.dials() != 8 {
			t.Errorf("%d dials, want 8: only what has no listing is discovered again", r.dials())
		}
	})
}

// One slow server holds up nobody.
func TestStateNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.set(nil, 20*time.Second)
		go r.mustCall()
		began := time.Now()
		time.Sleep(time.Second)
		for range 1000 {
			if st := r.srv.State(); st.Status != Connecting {
				t.Fatalf("status %q", st.Status)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
		after(30 * time.Second)
	})
}

func TestFirstStartMayTakeAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.set(nil, 45*time.Second)
		r.mustCall()
		r.want(Ready)
		after(11 * time.Minute)
		r.want(Cold)
		err := r.call(t.Context())
		var f *Failure
		if !errors.As(err, &f) || f.Stage != Handshake || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if d := time.Since(r.dialed[1]); d != 15*time.Second {
			t.Errorf("the second attempt took %v, want 15s", d)
		}
		r.srv.swap(lazy(func(s *configs.Server) { s.Limits.ConnectTimeout = time.Second }))
		if err := r.call(t.Context()); err == nil {
			t.Error("connected in a second")
		}
	})
}
