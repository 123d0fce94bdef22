package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Member implements node.Service. It reads the process if there is one, and else the unit.
func (u *Unit) Member(ctx context.Context) (node.Member, error) {
	_, err := u.state(ctx)
	if err != nil {
		return node.Member{}, err
	}
	service, err := u.systemd.GetUnitTypePropertiesContext(ctx, u.name, "Service")
	if err != nil {
		return node.Member{}, fmt.Errorf("%w: ask systemd about %s: %w", fault.Unreachable, u.name, err)
	}
	p, err := u.process(service)
	if err != nil {
		return node.Member{}, err
	}
	m, err := p.Member()
	if err != nil {
		return m, err
	}
	m.Owner = ownerOf(service)
	return m, nil
}

// process returns the etcd that runs, or the one that the unit would start.
func (u *Unit) process(service map[string]any) (node.Process, error) {
	pid, _ := service["MainPID"].(uint32)
	if pid > 0 {
		p, err := running(pid)
		switch {
		case errors.Is(err, errOther):
			return p, u.unknown()
		case err == nil:
			return p, nil
		}
	}
	return u.started(service)
}

// errOther means that a process is not etcd.
var errOther = errors.New("the process is not etcd")

// unknown is the error of a unit that runs a script, a container or a distribution with its own etcd: the paths in its command line may
// not be those of this host.
func (u *Unit) unknown() error {
	err := node.RefuseOthers("/")
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s does not run etcd itself, so its data dir on this host is not known: use --into command", fault.Refused, u)
}

// running returns the process with this id.
func running(pid uint32) (p node.Process, err error) {
	dir := fmt.Sprint("/proc/", pid)
	line, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return p, err
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if filepath.Base(words[0]) != "etcd" {
		return p, errOther
	}
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return p, err
	}
	p = node.Process{Args: words[1:], Env: map[string]string{}}
	for _, pair := range strings.Split(string(env), "\x00") {
		p.Set(pair)
	}
	p.Dir, err = os.Readlink(dir + "/cwd")
	return p, err
}

// started returns the process that the unit would start.
func (u *Unit) started(service map[string]any) (p node.Process, err error) {
	p = node.Process{Env: map[string]string{}}
	p.Dir, _ = service["WorkingDirectory"].(string)
	p.Dir = strings.TrimPrefix(p.Dir, "!") // it may be missing
	if p.Dir == "" {
		p.Dir = "/"
	}
	pairs, _ := service["Environment"].([]string)
	files, _ := service["EnvironmentFiles"].([][]any)
	for _, file := range files {
		path, _ := file[0].(string)
		optional, _ := file[1].(bool)
		more, err := readEnvironment(path)
		if err != nil && !(optional && errors.Is(err, fs.ErrNotExist)) {
			return p, fmt.Errorf("%w: read the environment file of %s: %w: correct EnvironmentFile of the unit", fault.Refused, u, err)
		}
		pairs = append(pairs, more...)
	}
	for _, pair := range pairs {
		p.Set(pair)
	}
	commands, _ := service["ExecStart"].([][]any)
	if len(commands) != 1 {
		return p, u.unknown()
	}
	words, _ := commands[0][1].([]string)
	if len(words) == 0 || filepath.Base(words[0]) != "etcd" {
		return p, u.unknown()
	}
	p.Args = p.Expand(words[1:])
	return p, nil
}

// ownerOf returns the user and the group of the unit's process; nil: root, or a user that this program cannot look up. Such a user needs
// none: systemd gives the directories of DynamicUser= to it.
func ownerOf(service map[string]any) *node.Owner {
	name, _ := service["User"].(string)
	group, _ := service["Group"].(string)
	found, err := user.Lookup(name)
	if err != nil {
		found, err = user.LookupId(name)
	}
	if err != nil {
		found = &user.User{Uid: name, Gid: group}
	}
	ofGroup, err := user.LookupGroup(group)
	if err == nil {
		found.Gid = ofGroup.Gid
	}
	uid, errUID := strconv.Atoi(found.Uid)
	gid, errGID := strconv.Atoi(found.Gid)
	if errors.Join(errUID, errGID) != nil {
		return nil
	}
	return &node.Owner{UID: uid, GID: gid}
}

// readEnvironment returns the assignments in an environment file of systemd, without quotes around their values.
func readEnvironment(path string) (pairs []string, err error) {
	text, err := os.ReadFile(path)
	for _, line := range strings.Split(string(text), "\n") {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ";") {
			continue
		}
		for _, quote := range []string{`"`, `'`} {
			if len(value) > 1 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
				value = value[1 : len(value)-1]
				break
			}
		}
		pairs = append(pairs, name+"="+value)
	}
	return pairs, err
}
