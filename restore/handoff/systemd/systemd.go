// Package systemd runs the member on this host as a unit of systemd, for package node. It talks to systemd itself, so it needs root and no
// D-Bus daemon.
package systemd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Unit is the node.Service of a unit that runs etcd.
//
// While the member must not run, a drop-in of the unit has a condition that is never true. systemctl mask would not do: it fails for a unit
// file in /etc/systemd/system. A reboot removes the drop-in. Once the old data is aside, the file in its place still keeps
// etcd from starting.
type Unit struct {
	name    string // with .service
	systemd *dbus.Conn
}

// DefaultUnit is the unit's usual name.
const DefaultUnit = "etcd"

// Connect connects to systemd. The caller must call Close.
func Connect(ctx context.Context, unit string) (*Unit, error) {
	if !strings.HasSuffix(unit, ".service") {
		unit += ".service"
	}
	systemd, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: connect to systemd: %w: run the command as root, on a host with systemd", fault.Usage, err)
	}
	return &Unit{name: unit, systemd: systemd}, nil
}

// Close ends the connection.
func (u *Unit) Close() { u.systemd.Close() }

// String implements node.Service.
func (u *Unit) String() string { return "unit " + u.name }

// Acts implements node.Service.
func (u *Unit) Acts() (stop, start handoff.Act) {
	return handoff.Act{Text: "keep the unit from starting, and stop it", Verb: "systemctl stop " + u.name},
		handoff.Act{Text: "let the unit start again, and start it", Verb: "systemctl start --no-block " + u.name}
}

// Runs implements node.Service. A unit that a drop-in keeps from starting ran before.
func (u *Unit) Runs(ctx context.Context) (bool, error) {
	state, err := u.state(ctx)
	return state != "inactive" && state != "failed" || u.isClosed(), err
}

// isClosed reports whether the drop-in is there.
func (u *Unit) isClosed() bool {
	found, err := os.ReadFile(u.dropIn())
	return err == nil && string(found) == u.never()
}

// state returns the ActiveState of the unit.
func (u *Unit) state(ctx context.Context) (string, error) {
	all, err := u.systemd.GetUnitPropertiesContext(ctx, u.name)
	if err != nil {
		return "", fmt.Errorf("%w: ask systemd about %s: %w", fault.Unreachable, u.name, err)
	}
	if all["LoadState"] == "not-found" {
		return "", fmt.Errorf("%w: systemd has no unit %s: name the unit that runs etcd with --into systemd/UNIT", fault.NotFound, u.name)
	}
	state, _ := all["ActiveState"].(string)
	return state, nil
}

// dropIn is the file that keeps the unit from starting.
func (u *Unit) dropIn() string {
	return filepath.Join("/run/systemd/system", u.name+".d", "etcd-dr-restore.conf")
}

// never is the content of that file.
func (u *Unit) never() string {
	return `# dr restore --into systemd keeps etcd from starting until the restored data is in its place. After --fence-only alone,
# --unfence starts it. To start etcd anyway, remove ` + u.dropIn() + `, and run systemctl daemon-reload.
[Unit]
ConditionPathExists=/run/etcd-dr/restore-has-ended
`
}

// Stop implements node.Service.
func (u *Unit) Stop(ctx context.Context) (handoff.Progress, error) {
	err := u.close(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	state, err := u.state(ctx)
	switch {
	case err != nil:
		return handoff.Progress{}, err
	case state == "inactive", state == "failed":
		return handoff.Progress{Done: true}, nil
	}
	_, err = u.systemd.StopUnitContext(ctx, u.name, "replace", nil)
	return handoff.Progress{Waiting: fmt.Sprintf("%s is being stopped (%s)", u, state)}, u.failed("stop", err)
}

// close makes the drop-in, and has systemd read it. Either may have been interrupted before.
func (u *Unit) close(ctx context.Context) error {
	if u.isClosed() {
		property, err := u.systemd.GetUnitPropertyContext(ctx, u.name, "NeedDaemonReload")
		if err == nil && property.Value.Value() == false {
			return nil
		}
	}
	err := os.MkdirAll(filepath.Dir(u.dropIn()), 0o755)
	if err == nil {
		err = filesystem.WriteFile(u.dropIn(), []byte(u.never()), 0o644)
	}
	if err != nil {
		return err
	}
	return u.failed("reload", u.systemd.ReloadContext(ctx))
}

// Enable implements node.Service.
func (u *Unit) Enable(ctx context.Context) (handoff.Progress, error) {
	err := os.Remove(u.dropIn())
	if err != nil && !os.IsNotExist(err) {
		return handoff.Progress{}, err
	}
	_ = os.Remove(filepath.Dir(u.dropIn())) // unless it has other drop-ins
	return handoff.Progress{Done: true}, u.failed("reload", u.systemd.ReloadContext(ctx))
}

// Start implements node.Service. It is done once systemd starts the unit: one of Type=notify is active only when the members have a leader.
func (u *Unit) Start(ctx context.Context) (handoff.Progress, error) {
	_, err := u.Enable(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	state, err := u.state(ctx)
	switch {
	case err != nil:
		return handoff.Progress{}, err
	case state == "active", state == "activating", state == "reloading":
		return handoff.Progress{Done: true}, nil
	case state == "failed":
		_ = u.systemd.ResetFailedUnitContext(ctx, u.name) // etcd exited on the file in the place of its data, so the unit may have reached its limit of starts
	}
	_, err = u.systemd.StartUnitContext(ctx, u.name, "replace", nil)
	return handoff.Progress{Waiting: fmt.Sprintf("%s is being started (%s)", u, state)}, u.failed("start", err)
}

func (u *Unit) failed(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s %s: %w: see journalctl -u %s", fault.Unreachable, act, u, err, u.name)
}
