package handoff

import "time"

// Rebuild returns the Record of a restore that was in phase p, after Pending, when its record was lost. h is what Inspect finds now. The
// owner holds all of a Claim again.
//
// If no member was stopped, the restore plans again, and reuses the staged data. If restored members may have served, it starts all members,
// and ends without a comparison with the plan. Otherwise it rolls back: the disks hold the progress of each member. Rebuild is pure.
func Rebuild(id string, p Phase, h Handoff, now time.Time) Record {
	r := Record{ID: id, Phase: p, Since: now, Rebuilt: true, Handoff: h, Staged: true}
	if !h.Held && (p == Planning || p == Staging || p == Fencing) {
		return r.begin(Plan, now)
	}
	r.Sealed, r.Down = true, now
	if p == Releasing || p == Verifying {
		return r.begin(Release, now)
	}
	r.Reason = "the record of the restore was deleted"
	return r.begin(Resuspend, now)
}
