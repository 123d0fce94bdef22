package convert

import (
	"encoding/json"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/foreign"
)

// Foreign returns the document of translations. Its lists are never nil.
func Foreign(all []foreign.Translation) document.Convert {
	d := document.Convert{Objects: []document.ConvertedObject{}}
	for _, t := range all {
		o := document.ConvertedObject{From: t.From, Objects: []map[string]any{}, Differences: append([]string{}, t.Differences...), Import: t.Old.Import}
		for _, object := range t.Objects {
			o.Objects = append(o.Objects, fieldsOf(object))
		}
		if t.Err != nil {
			o.Error = t.Err.Error()
		}
		d.Objects = append(d.Objects, o)
	}
	return d
}

// fieldsOf returns the fields of o, as decoded from its JSON.
func fieldsOf(o foreign.Object) (fields map[string]any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // cannot happen: all fields are plain data
	}
	return fields
}
