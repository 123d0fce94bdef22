package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// version is one generation of an object: locks are a version's own.
type version struct {
	bucket, object string
	generation     int64
}

// lock is what keeps one version from being deleted, beside its bucket's rules.
type lock struct {
	temporaryHold  bool
	eventBasedHold bool
	retention      retention
}

// retention is an object's own, in the API's form.
type retention struct {
	Mode            string    `json:"mode"` // Locked or Unlocked; empty: none
	RetainUntilTime time.Time `json:"retainUntilTime"`
}

// retentionRules are what a bucket says of all its objects.
type retentionRules struct {
	objects bool          // objects may have a retention of their own
	period  time.Duration // 0: none
}

// lockChange is the part of a request's body that is about locks. What is nil stays as it is.
type lockChange struct {
	TemporaryHold  *bool           `json:"temporaryHold"`
	EventBasedHold *bool           `json:"eventBasedHold"`
	Retention      retentionChange `json:"retention"`
}

// retentionChange tells a retention that is not mentioned from null, which takes it away.
type retentionChange struct {
	mentioned bool
	to        retention
}

func (c *retentionChange) UnmarshalJSON(data []byte) error {
	c.mentioned = true
	return json.Unmarshal(data, &c.to)
}

func (c lockChange) applied(to lock) lock {
	if c.TemporaryHold != nil {
		to.temporaryHold = *c.TemporaryHold
	}
	if c.EventBasedHold != nil {
		to.eventBasedHold = *c.EventBasedHold
	}
	if c.Retention.mentioned {
		to.retention = c.Retention.to
	}
	return to
}

// wrongGeneration answers what a precondition refuses. An object that does not exist is the library's to report.
func (f *fake) wrongGeneration(c call) *answer {
	want := c.request.URL.Query().Get("ifGenerationMatch")
	if want == "" {
		want = c.request.Header.Get("X-Goog-If-Generation-Match")
	}
	if want == "" {
		return nil
	}
	current, exists := f.current(c)
	if !exists || strconv.FormatInt(current, 10) == want {
		return nil
	}
	return refuse(http.StatusPreconditionFailed, "conditionNotMet",
		"At least one of the pre-conditions you specified did not hold.")
}

// current is the object's live generation.
func (f *fake) current(c call) (generation int64, exists bool) {
	found, err := f.store.GetObject(c.bucket, c.object)
	return found.Generation, err == nil
}

func (f *fake) answerObject(c call) *answer {
	if refused := f.wrongGeneration(c); refused != nil {
		return refused
	}
	switch c.request.Method {
	case http.MethodDelete:
		if refused := f.lockedAgainstDelete(c); refused != nil {
			return refused
		}
	case http.MethodPatch, http.MethodPut:
		return f.update(c)
	}
	return f.forward(c)
}

// lockedAgainstDelete lets a versioned bucket's live version become a noncurrent one, which its lock goes on to keep.
func (f *fake) lockedAgainstDelete(c call) *answer {
	if named := c.request.URL.Query().Get("generation"); named != "" {
		generation, err := strconv.ParseInt(named, 10, 64)
		if err != nil {
			return refuse(http.StatusBadRequest, "invalid", "generation: "+err.Error())
		}
		return f.locked(version{c.bucket, c.object, generation})
	}
	return f.lockedAgainstOverwrite(c)
}

func (f *fake) lockedAgainstOverwrite(c call) *answer {
	generation, exists := f.current(c)
	if kept, err := f.store.Backend().GetBucket(c.bucket); err != nil || kept.VersioningEnabled || !exists {
		return nil
	}
	return f.locked(version{c.bucket, c.object, generation})
}

func (f *fake) locked(v version) *answer {
	found, err := f.store.GetObjectWithGeneration(v.bucket, v.object, v.generation)
	if err != nil {
		return nil
	}
	kept := f.locks[v]
	name := fmt.Sprintf("Object '%s/%s' ", v.bucket, v.object)
	until := kept.retention.RetainUntilTime
	switch expires := found.Created.Add(f.buckets[v.bucket].period); {
	case kept.temporaryHold || kept.eventBasedHold:
		return refuse(http.StatusForbidden, "retentionPolicyNotMet",
			name+"is under active hold and cannot be deleted or overwritten.")
	case until.After(time.Now()):
		return notYet(name+"is subject to its retention", until)
	case expires.After(time.Now()):
		return notYet(name+"is subject to bucket's retention policy", expires)
	}
	return nil
}

func notYet(reason string, until time.Time) *answer {
	return refuse(http.StatusForbidden, "retentionPolicyNotMet",
		reason+" and cannot be deleted or overwritten until "+until.UTC().Format(time.RFC3339))
}

func (f *fake) update(c call) *answer {
	var change lockChange
	if err := json.Unmarshal(c.body, &change); err != nil {
		return refuse(http.StatusBadRequest, "parseError", err.Error())
	}
	generation, exists := f.current(c)
	if !exists {
		return f.forward(c)
	}
	v := version{c.bucket, c.object, generation}
	if refused := f.wrongRetention(c, f.locks[v].retention, change.Retention); refused != nil {
		return refused
	}
	f.locks[v] = change.applied(f.locks[v])
	c.body = withoutRetention(c.body)
	return f.forward(c)
}

// wrongRetention keeps a locked retention from getting weaker, and an unlocked one without the caller's express word.
func (f *fake) wrongRetention(c call, old retention, change retentionChange) *answer {
	switch {
	case !change.mentioned:
		return nil
	case !f.buckets[c.bucket].objects:
		return refuse(http.StatusBadRequest, "invalid", "Object retention is not enabled on bucket "+c.bucket)
	case change.to.Mode == old.Mode && !change.to.RetainUntilTime.Before(old.RetainUntilTime):
		return nil
	case old.Mode == "Locked":
		return refuse(http.StatusForbidden, "forbidden", "A locked retention can only be extended.")
	case old.Mode == "Unlocked" && c.request.URL.Query().Get("overrideUnlockedRetention") != "true":
		return refuse(http.StatusForbidden, "forbidden",
			"overrideUnlockedRetention is needed to reduce an unlocked retention.")
	}
	return nil
}

// withoutRetention keeps the library from storing a second one with rules of its own.
func withoutRetention(body []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return body
	}
	delete(fields, "retention")
	rest, err := json.Marshal(fields)
	if err != nil {
		panic(err) // it has been JSON before
	}
	return rest
}
