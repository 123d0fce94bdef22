package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Report is the outcome of a task on one member's disk, as its process returns it. Exactly one of Done, Waiting, Stale and Error is set.
type Report struct {
	Done    bool          `json:"done,omitempty"`
	Waiting string        `json:"waiting,omitempty"` // why it is not done yet, such as that etcd runs: the task must be repeated
	Stale   bool          `json:"stale,omitempty"`   // of DoSeal: the data dir is not the one for which the new data was built
	Error   *fault.Packed `json:"error,omitempty"`

	Obstacle *plan.Obstacle `json:"obstacle,omitempty"` // of DoStage: the obstacle that the plan met, described by Error; nil: no other plan helps
	Built    *Built         `json:"built,omitempty"`    // of DoStage: the new data, once it is done
	Vacant   bool           `json:"vacant,omitempty"`   // there is no old data
	View     *View          `json:"view,omitempty"`     // of DoLook
}

// View describes a member's disk. Sizes are in bytes.
type View struct {
	State   string `json:"state"`             // of the restore on this disk
	Running bool   `json:"running,omitempty"` // a process holds etcd's locks in the live data
	Owner   *Owner `json:"owner,omitempty"`   // of the live data; nil: there is none
	Data    Space  `json:"data"`              // of the file system with the data dir
	Log     *Space `json:"log,omitempty"`     // of the one with the log; nil: it is in the data dir
}

// Owner is the owner of a directory, and its permissions.
type Owner struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Mode string `json:"mode"` // in octal, such as 0700
}

// Space is the space of a file system.
type Space struct {
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
}

// ReportOf returns the Report of a task that failed with err.
func ReportOf(err error) Report {
	packed := fault.Pack(err)
	return Report{Error: &packed}
}

// Err returns the error that ended the task; nil if the task met an obstacle, which another plan may avoid.
func (r Report) Err() error {
	if r.Error == nil || r.Obstacle != nil {
		return nil
	}
	return r.Error.Err()
}

// Progress returns the progress of the task, and its error. p is the plan of DoStage, and unused for other tasks.
func (r Report) Progress(p plan.Plan) (Progress, error) {
	progress := Progress{Done: r.Done, Waiting: r.Waiting, Stale: r.Stale, Built: r.Built, Vacant: r.Vacant}
	if r.Obstacle != nil {
		progress.Met = &Met{Plan: p, Obstacle: *r.Obstacle, Error: *r.Error}
		progress.Waiting = r.Error.Message
	}
	return progress, r.Err()
}

// MaxReport is the maximum size of an encoded Report in bytes: a kubelet keeps no more of a container's termination message.
const MaxReport = 4096

// Encode returns r as compact JSON of at most MaxReport bytes. It shortens long texts, and omits control characters: the texts may
// contain names from a repository, and end in a terminal.
func (r Report) Encode() []byte {
	for limit := MaxReport; ; limit /= 2 {
		encoded, _ := json.Marshal(r.shortened(limit)) // cannot fail: all fields are plain data
		if len(encoded) <= MaxReport {
			return encoded
		}
	}
}

// shortened returns r with texts of at most limit bytes, and lists of as many elements.
func (r Report) shortened(limit int) Report {
	r.Waiting = shorten(r.Waiting, limit)
	if r.Error != nil {
		short := fault.Packed{Message: shorten(r.Error.Message, limit), Remedy: shorten(r.Error.Remedy, limit)}
		short.Kinds = r.Error.Kinds[:min(limit, len(r.Error.Kinds))]
		for _, s := range r.Error.Sentinels {
			if len(s.Text) <= limit && len(short.Sentinels) < limit {
				short.Sentinels = append(short.Sentinels, s)
			}
		}
		r.Error = &short
	}
	if r.Built != nil {
		short := *r.Built
		short.ClusterID = shorten(short.ClusterID, limit)
		r.Built = &short
	}
	if r.View != nil {
		r.View = r.View.shortened(limit)
	}
	return r
}

func (v View) shortened(limit int) *View {
	v.State = shorten(v.State, limit)
	if v.Owner != nil {
		short := *v.Owner
		short.Mode = shorten(short.Mode, limit)
		v.Owner = &short
	}
	return &v
}

// shorten returns text without control characters, and with at most limit bytes. It omits the middle: the end names the remedy.
func shorten(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return ' '
		}
		return r
	}, text)
	const gap = " … "
	if len(text) <= limit {
		return text
	}
	keep := limit - len(gap)
	if keep <= 0 {
		return ""
	}
	begin, end := keep/2, len(text)-keep/2
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return text[:begin] + gap + text[end:]
}

// DecodeReport decodes the output of Encode. Its errors never end a restore: a process that was killed leaves part of a report,
// or none, and its task is repeated.
func DecodeReport(encoded []byte) (Report, error) {
	var r Report
	err := json.Unmarshal(encoded, &r)
	if err == nil {
		err = r.validate()
	}
	if err != nil {
		return Report{}, fmt.Errorf("read the report of a task: %w", err)
	}
	return r, nil
}

func (r Report) validate() error {
	outcomes := 0
	for _, set := range []bool{r.Done, r.Waiting != "", r.Stale, r.Error != nil} {
		if set {
			outcomes++
		}
	}
	switch {
	case outcomes != 1:
		return fmt.Errorf("it has %d outcomes instead of one", outcomes)
	case r.Obstacle != nil && r.Error == nil:
		return errors.New("it has an obstacle without an error")
	}
	return nil
}
