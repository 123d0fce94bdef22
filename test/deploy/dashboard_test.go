package deploy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults  struct{ Unit string } `json:"defaults"`
		Overrides []struct {
			Properties []struct{ ID string } `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	Targets []struct{ Expr string } `json:"targets"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	err := json.Unmarshal([]byte(readFile(t, dashboardFile)), &d)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.SchemaVersion < 39 || len(d.Templating.List) != 2 {
		t.Errorf("the dashboard is %q, of schema %d, with the variables %v", d.UID, d.SchemaVersion, d.Templating.List)
	}
	ids, places := map[int]bool{}, map[string]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%q has the id %d of another panel", p.Title, p.ID)
		}
		ids[p.ID] = true
		wantPlace(t, p, places)
		wantPanel(t, p)
	}
}

// wantPanel fails the test unless p explains itself with a title, a description and units.
func wantPanel(t *testing.T, p panel) {
	t.Helper()
	if p.Title == "" || p.Description == "" {
		t.Errorf("panel %d has the title %q and the description %q", p.ID, p.Title, p.Description)
	}
	if p.Type == "row" {
		return
	}
	if p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
		t.Errorf("%q has the unit %q, the data source %q and %d queries", p.Title, p.FieldConfig.Defaults.Unit, p.Datasource.UID, len(p.Targets))
	}
	for _, q := range p.Targets {
		wantMetrics(t, p.Title, q.Expr)
	}
}

// wantPlace fails the test if p overlaps another panel, or exceeds the 24 columns.
func wantPlace(t *testing.T, p panel, places map[string]string) {
	t.Helper()
	g := p.GridPos
	if g.X+g.W > 24 || g.W == 0 || g.H == 0 {
		t.Errorf("%q lies at %+v", p.Title, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			at := fmt.Sprint(x, y)
			other := places[at]
			if other != "" {
				t.Fatalf("%q lies on %q", p.Title, other)
			}
			places[at] = p.Title
		}
	}
}

// TestDashboardQueries checks that Prometheus can parse the queries, once Grafana has filled in its variables.
func TestDashboardQueries(t *testing.T) {
	variables := strings.NewReplacer("$__rate_interval", "5m", "$cluster", "prod")
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, p := range readDashboard(t).Panels {
		for i, q := range p.Targets {
			expr := variables.Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%q uses a variable that is not there: %s", p.Title, q.Expr)
			}
			fmt.Fprintf(&b, "  - {record: 'panel:%d_%d', expr: %q}\n", p.ID, i, expr)
		}
	}
	promtool(t, "check", "rules", writeFile(t, "queries.yaml", b.String()))
}
