package restore

import (
	"fmt"
	"strconv"
)

// Bump says by how much revisions go up after the restore, and that everything before is marked compacted. A client
// that caches by revision, as every Kubernetes API server and controller does, then sees that its cache is void;
// without it revisions would go back, and it would miss changes without noticing.
type Bump struct {
	// By is the number of revisions, 0 for none. With Auto it counts only if the key space turns out to be Kubernetes'.
	By     int64  `json:"by"`
	Auto   bool   `json:"auto,omitempty"` // decided when the database is open: nobody knows before
	Reason string `json:"reason"`
}

// kubernetesBump is more than any cluster writes between a backup and its restore: ten days at a thousand writes a
// second. It is what others use too where the number of lost writes is unknown.
const kubernetesBump = 1_000_000_000

func (p *Plan) setBump(text string) error {
	switch text {
	case "", "auto":
		p.Bump = p.autoBump()
		return nil
	}
	by, err := strconv.ParseInt(text, 10, 62)
	if err != nil || by < 0 {
		return fmt.Errorf("%w: --bump-revision %q: use auto, 0 or a number of revisions", ErrLayout, text)
	}
	p.Bump = Bump{By: by, Reason: "as asked for"}
	return nil
}

func (p *Plan) autoBump() Bump {
	switch {
	case p.Backup == nil:
		return Bump{By: kubernetesBump, Auto: true, Reason: "if the file holds a Kubernetes key space (/registry/)"}
	case p.Backup.Kubernetes:
		return Bump{By: kubernetesBump, Reason: "the key space is Kubernetes': API servers and controllers must see that their caches are void"}
	}
	return Bump{Reason: "the key space is not Kubernetes': clients that cache by revision need --bump-revision N"}
}

// decided is the number of revisions to bump once it is known whose key space it is.
func (b Bump) decided(kubernetes bool) int64 {
	if b.Auto && !kubernetes {
		return 0
	}
	return b.By
}
