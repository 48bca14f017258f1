package proxy

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// outputOptions bound the output store; zero values are the defaults.
type outputOptions struct {
	TTL      time.Duration    // default 7 days
	MaxEntry int64            // bytes kept of one output; default 64 MiB
	MaxTotal int64            // bytes kept in all; default 512 MiB
	now      func() time.Time // default time.Now
}

// outputs keeps results that are too large for one answer, each in a file of its own under an id that can't be guessed.
// It is safe for concurrent use, and several processes may share its directory: files appear whole by a rename, are never
// changed, and disappear whole.
type outputs struct {
	dir string
	o   outputOptions

	used atomic.Int64 // bytes in the directory at the last sweep and put by us since
	next atomic.Int64 // time of the next sweep
}

// outputOwner is whose call an output came from.
type outputOwner struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Scope  string `json:"scope,omitempty"`
}

// outputEntry is the first line of an output's file; the text follows.
type outputEntry struct {
	Owner   outputOwner `json:"owner"`
	Created time.Time   `json:"created"`
	Bytes   int64       `json:"bytes"` // of the text in the file
	Whole   int64       `json:"whole"` // of the text before it was cut
	Lines   int         `json:"lines"`
	IsText  bool        `json:"isText"` // else JSON
}

// outputError is what is wrong with a query.
type outputError struct {
	Code, Msg, Hint string
}

func (e *outputError) Error() string { return e.Msg }

func badQuery(format string, a ...any) error {
	return &outputError{Code: string(InvalidArguments), Msg: "read_cache: " + fmt.Sprintf(format, a...)}
}

const (
	unknownCacheID = "unknown_cache_id"
	expiredCacheID = "expired_cache_id"

	maxPage       = 50 << 10 // bytes of one answer
	maxHeader     = 8 << 10
	sweepEvery    = time.Minute
	maxExpression = 4 << 10  // bytes of a grep, jq or pointer
	maxJQ         = 16 << 20 // bytes of JSON that jq is given
	maxJQResult   = 4 << 20
	maxJQMemory   = 512 << 20
	maxQueryTime  = 2 * time.Second
	maxDiff       = 8 << 20 // bytes of each side
	maxEdits      = 2000    // lines that differ before a diff shows the rest as one block
	longLine      = 2000    // bytes from which on grep shows what is around a match
	goneSuffix    = ".gone" // of the empty file that an expired entry leaves behind
	tmpPrefix     = ".tmp-"
)

var cacheID = regexp.MustCompile(`^mcpout_[a-z2-7]{26}$`)

// openOutputs opens a store in dir, which is made when absent, and clears away what is too old.
func openOutputs(dir string, o outputOptions) (*outputs, error) {
	o.TTL, o.MaxEntry, o.MaxTotal = cmp.Or(o.TTL, 7*24*time.Hour), cmp.Or(o.MaxEntry, 64<<20), cmp.Or(o.MaxTotal, 512<<20)
	if o.now == nil {
		o.now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm() == 0o700 {
		// as it should be; a read-only file system could not take it again
	} else if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	s := &outputs{dir: dir, o: o}
	_ = s.sweep() // what can't be cleared away now is tried again with the next output
	return s, nil
}

// put keeps a text, or the JSON of a result. What is over MaxEntry is kept cut; readers are told.
func (s *outputs) put(owner outputOwner, text []byte, isText bool) (id string, err error) {
	h := outputEntry{Owner: owner, Created: s.o.now(), Whole: int64(len(text)), IsText: isText}
	if h.Whole > s.o.MaxEntry {
		text = text[:runeEnd(text, int(s.o.MaxEntry))]
	}
	h.Bytes, h.Lines = int64(len(text)), lineCount(string(text))
	head, err := compact(h)
	if err != nil {
		return "", err
	}
	if len(head) > maxHeader {
		return "", errors.New("the names of server and tool are too long")
	}
	var random [17]byte         // 130 bits are needed
	_, _ = rand.Read(random[:]) // never fails
	id = "mcpout_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))[:26]
	if err := s.write(id, append(head, '\n'), text, h.Created); err != nil {
		return "", withoutPath(err)
	}
	if s.used.Add(h.Bytes) > s.o.MaxTotal || s.o.now().UnixNano() >= s.next.Load() {
		_ = s.sweep() // the entry is kept all the same, and the next put tries again
	}
	return id, nil
}

// write makes the file of an entry appear whole. Its time is the entry's, so that a sweep need not open it.
func (s *outputs) write(id string, head, text []byte, created time.Time) error {
	f, err := os.CreateTemp(s.dir, tmpPrefix+"*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(head)
	if err == nil {
		_, err = f.Write(text)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Chtimes(f.Name(), created, created)
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(id))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // best effort: a sweep removes it later
	}
	return err
}

func (s *outputs) path(id string) string { return filepath.Join(s.dir, id) }

// withoutPath is what is wrong with a file, without where it is.
func withoutPath(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return fmt.Errorf("output store: %s: %w", at.Op, at.Err)
	case errors.As(err, &link):
		return fmt.Errorf("output store: %s: %w", link.Op, link.Err)
	}
	return err
}

// sweep buries entries that are too old, and the oldest ones while all together are too large. Several sweeps at once,
// by whatever process, do no harm.
func (s *outputs) sweep() error {
	now := s.o.now()
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return withoutPath(err)
	}
	var kept []fs.FileInfo
	var used int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or none of ours
		}
		id, gone := strings.CutSuffix(f.Name(), goneSuffix)
		age := now.Sub(info.ModTime())
		switch {
		case strings.HasPrefix(f.Name(), tmpPrefix) && age > time.Hour,
			gone && cacheID.MatchString(id) && age > 2*s.o.TTL:
			err = os.Remove(s.path(f.Name()))
		case gone && info.Size() > 0 && cacheID.MatchString(id):
			err = s.empty(f.Name(), info.ModTime())
		case !cacheID.MatchString(f.Name()):
		case age > s.o.TTL:
			err = s.bury(f.Name(), info.ModTime())
		default:
			kept, used = append(kept, info), used+info.Size()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return withoutPath(err)
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if used <= s.o.MaxTotal {
			break
		}
		if err := s.bury(info.Name(), info.ModTime()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return withoutPath(err)
		}
		used -= info.Size()
	}
	s.used.Store(used)
	s.next.Store(now.Add(sweepEvery).UnixNano())
	return nil
}

// bury removes an entry and leaves an empty file, so that its id is known to have expired.
func (s *outputs) bury(id string, created time.Time) error {
	if err := os.Rename(s.path(id), s.path(id+goneSuffix)); err != nil {
		return err
	}
	return s.empty(id+goneSuffix, created)
}

func (s *outputs) empty(name string, created time.Time) error {
	return errors.Join(os.Truncate(s.path(name), 0), os.Chtimes(s.path(name), created, created))
}

// open finds an entry that the asker may read. The reader begins at the text.
func (s *outputs) open(id string, allowed func(outputOwner) bool) (*outputEntry, *storedText, error) {
	unknown := &outputError{Code: unknownCacheID, Msg: fmt.Sprintf("there is no stored output %q", plain(id, 60)),
		Hint: "give a cacheId that a truncated result named; or make the call again"}
	expired := &outputError{Code: expiredCacheID, Msg: fmt.Sprintf("the stored output %q is not kept any more", plain(id, 60)),
		Hint: "make the call again"}
	if !cacheID.MatchString(id) { // before it is part of a path
		return nil, nil, unknown
	}
	f, err := os.Open(s.path(id))
	if err != nil {
		if _, gone := os.Lstat(s.path(id + goneSuffix)); gone == nil {
			return nil, nil, expired
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, withoutPath(err)
		}
		return nil, nil, unknown
	}
	h, from := readHeader(f)
	switch {
	case h == nil:
		err = unknown // damaged: a crash of the machine may leave that
	case s.o.now().Sub(h.Created) > s.o.TTL:
		err = expired
	case !allowed(h.Owner):
		err = &outputError{Code: string(NotPermitted), Msg: fmt.Sprintf("the stored output %q is of a tool that is not permitted", id),
			Hint: "the user's configuration forbids it"}
	default:
		return h, &storedText{f, from, h.Bytes}, nil
	}
	_ = f.Close() // was only read
	return nil, nil, err
}

// readHeader reads the first line of an entry's file; nil where the file is not whole.
func readHeader(f *os.File) (*outputEntry, int64) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0
	}
	b := make([]byte, min(info.Size(), maxHeader+1))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, 0
	}
	line, _, found := bytes.Cut(b, []byte("\n"))
	var h outputEntry
	if !found || json.Unmarshal(line, &h) != nil || h.Created.IsZero() || int64(len(line))+1+h.Bytes != info.Size() {
		return nil, 0
	}
	return &h, int64(len(line)) + 1
}

// storedText is the text of an entry in its file.
type storedText struct {
	f    *os.File
	from int64
	size int64
}

// close ends reading; a file that was only read has nothing to lose.
func (t *storedText) close() { _ = t.f.Close() }

// slice reads a part of the text.
func (t *storedText) slice(from, to int64) ([]byte, error) {
	b := make([]byte, to-from)
	if _, err := t.f.ReadAt(b, t.from+from); err != nil {
		return nil, withoutPath(err)
	}
	return b, nil
}

func (t *storedText) all() ([]byte, error) { return t.slice(0, t.size) }

// cutInline is the head of a text in at most so many bytes and lines, how many lines it has, and whether it is not the
// whole. It ends with a line where one ends in the last half of what may be shown, else on a rune.
func cutInline(text string, maxBytes, maxLines int) (head string, lines int, cut bool) {
	end := 0
	for n := 0; n < maxLines && end < len(text); n++ {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			i = len(text) - end - 1
		}
		end += i + 1
	}
	if maxBytes = max(maxBytes, 0); end > maxBytes {
		end = maxBytes
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		if i := strings.LastIndexByte(text[:end], '\n'); i >= end/2 {
			end = i + 1
		}
	}
	head = text[:end]
	return head, lineCount(head), end < len(text)
}
