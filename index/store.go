package index

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// folder is the directory of listings, one file for each server, as this process knows it. Its owner is whoever holds
// Catalog.writing. The zero folder is none at all and stays empty.
type folder struct {
	dir     string
	warn    func(msg string, args ...any)
	files   map[string]known // by file name
	settled bool             // nothing can have changed since files was made, but for what the directory's time shows
	time    time.Time
}

// known is a file as it was last read or written here.
type known struct {
	server string // "" for one that can neither be read nor set aside
	info   os.FileInfo
}

const (
	fileEnd     = ".json"
	damagedEnd  = ".damaged" // what could not be read is kept under this name until the next such case
	temporary   = ".new-"
	orphanAge   = time.Hour       // a temporary file this old was left by a crash
	settledness = 2 * time.Second // file times are no finer than this, on the coarsest file systems
)

func (f *folder) open(dir string, warn func(msg string, args ...any)) error {
	f.dir, f.warn, f.files = dir, warn, map[string]known{}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_ = os.Chmod(dir, 0o700) // one that is another user's stays as it is
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), temporary) && time.Since(info.ModTime()) > orphanAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// stirred tells whether files may have changed since changes was last asked, at the price of one stat.
func (f *folder) stirred() bool {
	info, err := os.Stat(f.dir)
	return err == nil && !(f.settled && info.ModTime().Equal(f.time))
}

// changes reads the files that are not as they are known, and names the servers whose files are gone.
func (f *folder) changes() (come []*entry, gone []string) {
	if f.dir == "" {
		return nil, nil
	}
	dir, err := os.Stat(f.dir)
	if err != nil {
		return nil, nil // what is known stays
	}
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, nil
	}
	f.time, f.settled = dir.ModTime(), time.Since(dir.ModTime()) > settledness
	present, aside := map[string]bool{}, map[string]bool{}
	var names []string
	for _, e := range list {
		name := e.Name()
		if of, ok := strings.CutSuffix(name, damagedEnd); ok {
			aside[of] = true
		}
		if !strings.HasSuffix(name, fileEnd) || strings.HasPrefix(name, temporary) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed in this moment
		}
		present[name] = true
		if k, ok := f.files[name]; !ok || !same(k.info, info) {
			names = append(names, name)
		}
	}
	read := make([]*entry, len(names))
	infos := make([]os.FileInfo, len(names))
	errs := make([]error, len(names))
	var work sync.WaitGroup
	for w := range 2 {
		work.Go(func() {
			for i := w; i < len(names); i += 2 {
				read[i], infos[i], errs[i] = f.read(names[i])
			}
		})
	}
	work.Wait()
	for i, name := range names {
		switch {
		case errors.Is(errs[i], fs.ErrNotExist):
			present[name] = false
		case errs[i] != nil:
			f.setAside(name, infos[i], errs[i]) // what was read of it before stays in memory
		default:
			f.files[name] = known{read[i].listing.Server, infos[i]}
			come = append(come, read[i])
		}
	}
	for name, k := range f.files {
		if !present[name] {
			delete(f.files, name)
			if k.server != "" && !aside[name] { // what another process found damaged stays as it was last read here
				gone = append(gone, k.server)
			}
		}
	}
	return come, gone
}

func (f *folder) read(name string) (*entry, os.FileInfo, error) {
	path := filepath.Join(f.dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, info, errors.New("no plain file")
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		_ = os.Chmod(path, 0o600) // one that is another user's stays as it is
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, info, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil { // of the very file that is read: another may take its place at any time
		return nil, info, err
	}
	text := make([]byte, info.Size())
	if _, err := file.ReadAt(text, 0); err != nil {
		return nil, info, err
	}
	e, err := decode(text)
	if err != nil {
		return nil, info, err
	}
	if want := fileName(e.listing.Server); want != name {
		return nil, info, fmt.Errorf("it is of server %q, whose file is %s", e.listing.Server, want)
	}
	return e, info, nil
}

// setAside takes a file that can't be used out of the way.
func (f *folder) setAside(name string, info os.FileInfo, why error) {
	path := filepath.Join(f.dir, name)
	aside := path + damagedEnd
	if now, err := os.Lstat(path); err == nil && !same(now, info) {
		return // replaced meanwhile; the next look reads it
	}
	delete(f.files, name)
	_ = os.RemoveAll(aside)
	if err := os.Rename(path, aside); err != nil {
		f.warn("a cached listing can't be read, nor set aside; remove it by hand", "file", path, "err", why)
		f.files[name] = known{info: info}
		return
	}
	f.warn("a cached listing can't be read and was set aside; its server is listed anew when it is next connected",
		"file", aside, "err", why)
}

// write puts a server's file in place of the one before, at once and whole. It is not synced to the disk: what a power
// cut damages is found out on reading, and listed anew.
func (f *folder) write(server string, text []byte) error {
	name := fileName(server)
	file, err := os.CreateTemp(f.dir, temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	info, serr := file.Stat()
	if err = errors.Join(err, serr, file.Close()); err == nil {
		err = replace(file.Name(), filepath.Join(f.dir, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	f.files[name], f.settled = known{server, info}, false
	return nil
}

// replace renames. On Windows that fails for moments while another process reads the file.
func replace(from, to string) error {
	err := os.Rename(from, to)
	for i := 0; err != nil && runtime.GOOS == "windows" && i < 20; i++ {
		time.Sleep(10 * time.Millisecond)
		err = os.Rename(from, to)
	}
	return err
}

// remove deletes a server's file.
func (f *folder) remove(server string) error {
	if f.dir == "" {
		return nil
	}
	name := fileName(server)
	delete(f.files, name)
	_ = os.RemoveAll(filepath.Join(f.dir, name+damagedEnd))
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func same(a, b os.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

var plain = regexp.MustCompile(`^[a-z0-9_][a-z0-9._-]{0,79}$`)
var device = regexp.MustCompile(`^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`) // no file names on Windows

// fileName is the name of a server's file: its id where every system takes that for a name and keeps it apart from all
// others, else a likeness of it and a hash.
func fileName(server string) string {
	if plain.MatchString(server) && !device.MatchString(server) {
		return server + fileEnd
	}
	like := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, cut(server, 40))
	sum := sha256.Sum256([]byte(server))
	return fmt.Sprintf("%s~%x%s", strings.ToLower(like), sum[:8], fileEnd)
}
