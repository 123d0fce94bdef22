package systemd

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// requiring are the properties with the units that systemd stops when a unit is stopped (systemd.unit(5): Requires=, BindsTo=, PartOf=).
var requiring = []string{"RequiredBy", "BoundBy", "ConsistsOf"}

// Dependents returns a finding on each unit that is active, and that systemd stops with u: nothing starts it again.
func (u *Unit) Dependents(ctx context.Context) []handoff.Finding {
	all, err := u.systemd.GetUnitPropertiesContext(ctx, u.name)
	if err != nil {
		return nil // Member and Runs report that
	}
	var names []string
	for _, property := range requiring {
		units, _ := all[property].([]string)
		names = append(names, units...)
	}
	var findings []handoff.Finding
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		state, err := u.systemd.GetUnitPropertyContext(ctx, name, "ActiveState")
		if err != nil || state.Value.Value() != "active" {
			continue
		}
		findings = append(findings, handoff.Finding{
			Text:   fmt.Sprintf("systemd stops %s together with %s", name, u.name),
			Remedy: "after the restore, run systemctl start " + name,
		})
	}
	return findings
}
