package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/page"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/test/browser"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// picturesVariable names a folder that gets a picture of each page.
const picturesVariable = "ETCD_DR_PICTURES"

// TestPage tests the page with a fake service.
func TestPage(t *testing.T) {
	withServers(t)
	chromium := browser.Start(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"clicks": pageClicks, "keyboard": pageKeyboard, "typed": pageTyped, "text stays text": pageText, "orders": pageOrders,
		"token": pageToken, "away": pageAway, "reads alone": pageReader, "the newest by key": pageEnd, "a new backup": pageNewBackup,
		"not looked at": pageNotLooked, "a thousand clusters": pageThousand, "the nearest": pageNearest, "no plan to prune": pageUnpruned,
		"restores": pageRestores,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, chromium)
		})
	}
	for _, width := range []int64{320, 768, 1280} {
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d dark %v", width, dark), func(t *testing.T) {
				t.Parallel()
				pageLooks(t, chromium, browser.Look{Width: width, Dark: dark, Zone: "Europe/Berlin"})
			})
		}
	}
}

// visit opens the page of a service, and checks at the end that no error occurred.
func visit(t *testing.T, chromium context.Context, f http.Handler, address string, look browser.Look) *browser.Tab {
	t.Helper()
	served := httptest.NewServer(f)
	t.Cleanup(served.Close)
	tab := browser.Open(t, chromium, served.URL, look)
	t.Cleanup(func() { quiet(t, tab, served.URL) })
	tab.Do(chromedp.Navigate(served.URL + "/" + address))
	return tab
}

// quiet checks that the console has no messages except refused requests, and that no other server got a request.
func quiet(t *testing.T, tab *browser.Tab, origin string) {
	t.Helper()
	requests := tab.Requests()
	for _, url := range requests {
		if !strings.HasPrefix(url, origin+"/") {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(requests) < 5 {
		t.Errorf("only these requests were seen: %q", requests)
	}
	for _, said := range tab.Console() {
		if !strings.Contains(said, "Failed to load resource") { // the service refused, and the page shows it: other tests check that
			t.Errorf("the console says: %s", said)
		}
	}
}

const (
	fleetIsThere   = `document.querySelectorAll("table.fleet tbody tr").length === 14`
	clusterIsThere = `document.getElementById("command") && document.getElementById("kept") && document.querySelector(".timeline rect.window")`
	lookNow        = `document.dispatchEvent(new Event("visibilitychange"))` // and not up to ten seconds later
	commandShown   = `document.getElementById("command")?.textContent`
)

// answered returns the command that the service returns for the target in the tab's address.
func answered(t *testing.T, tab *browser.Tab) string {
	t.Helper()
	text := browser.Value[string](tab, `fetch("api/v1/clusters/prod/plan?" + location.hash.split("?")[1]).then((r) => r.text())`)
	var way document.Way
	err := json.Unmarshal([]byte(text), &way)
	if err != nil || way.Command == "" {
		t.Fatalf("%v: %s", err, text)
	}
	return way.Command
}

// pageClicks goes from all clusters to the worst one, to a moment, to the command, to the clipboard.
func pageClicks(t *testing.T, chromium context.Context) {
	tab := visit(t, chromium, newFakeService(), "", browser.Look{Width: 1040, Height: 930})
	tab.Until(fleetIsThere)
	keepPicture(t, "page-fleet", tab.Window)
	said := browser.Value[string](tab, `document.querySelector(".verdict").innerText`)
	want := "1 of 14 clusters needs you now, and 1 more should be looked at soon."
	if said != want {
		t.Errorf("the page says %q, want %q", said, want)
	}
	tab.Do(chromedp.Click(chromedp.CSS("table.fleet tbody tr:first-child a")))
	tab.Until(clusterIsThere)
	newest := browser.Value[string](tab, commandShown)
	place := browser.Value[[]float64](tab, `(() => {
		const line = document.querySelector(".timeline svg");
		line.scrollIntoView({block: "center"});
		const at = line.getBoundingClientRect();
		return [at.left + at.width * 0.31, at.top + 50];
	})()`)
	tab.Do(chromedp.MouseClickXY(place[0], place[1]))
	tab.Until(`location.hash.includes("time=") && ` + commandShown + `?.includes("--to ")`)
	shown := browser.Value[string](tab, commandShown)
	want = answered(t, tab)
	if shown != want || shown == newest {
		t.Errorf("the page shows\n%s\nthe service says\n%s\nof the newest point\n%s", shown, want, newest)
	}
	tab.Do(chromedp.Click(chromedp.ID("copy")))
	tab.Until(`document.querySelector(".command [role=status]").textContent === "copied"`)
	copied := browser.Value[string](tab, `navigator.clipboard.readText()`)
	if copied != shown {
		t.Errorf("copied was %q, shown %q", copied, shown)
	}
	browser.Value[bool](tab, `Boolean(scrollTo(0, document.getElementById("go-back-to-a-moment").parentElement.offsetTop - 8))`)
	keepPicture(t, "page-moment", tab.Window)
	tab.Do(chromedp.Reload()) // the address contains the whole state
	tab.Until(clusterIsThere)
	again := browser.Value[string](tab, commandShown)
	if again != shown {
		t.Errorf("the same address shows\n%s\nand before it was\n%s", again, shown)
	}
	tab.Do(chromedp.Click(chromedp.CSS(".back a")))
	tab.Until(fleetIsThere)
}

// pageKeyboard does the same without a mouse. A key without effect leaves the focus where it was, and the following
// steps fail.
func pageKeyboard(t *testing.T, chromium context.Context) {
	tab := visit(t, chromium, newFakeService(), "", browser.Look{})
	tab.Until(fleetIsThere)
	focus := func(want string) {
		t.Helper()
		tab.Until(fmt.Sprintf(`document.activeElement.matches(%q)`, want))
		if want != "main" && browser.Value[string](tab, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
			t.Errorf("nobody sees that %s has the focus", want)
		}
	}
	press := func(keys string) { t.Helper(); tab.Do(chromedp.KeyEvent(keys)) }
	press(kb.Tab)
	focus(".skip")
	press(kb.Enter)
	focus("main")
	press(kb.Tab)
	focus("#filter")
	press("pro")
	tab.Until(`document.querySelectorAll("table.fleet tbody tr").length === 1`)
	press(kb.Tab)
	focus("#open-prod")
	press(kb.Enter)
	tab.Until(clusterIsThere)
	focus("main")
	for range 20 {
		if browser.Value[bool](tab, `document.activeElement.matches(".timeline svg")`) {
			break
		}
		press(kb.Tab)
	}
	focus(".timeline svg")
	press(kb.End)
	press(kb.PageUp)
	tab.Until(`location.hash.includes("backup=") && document.activeElement.getAttribute("aria-valuetext").includes("backup, ")`)
	press(kb.ArrowLeft)
	tab.Until(`location.hash.includes("time=") && ` + commandShown + `?.includes("--to ")`)
	shown, want := browser.Value[string](tab, commandShown), answered(t, tab)
	if shown != want {
		t.Errorf("the page shows\n%s\nthe service says\n%s", shown, want)
	}
	before := browser.Value[string](tab, `document.activeElement.getAttribute("aria-valuenow")`)
	press("-")
	press(kb.ArrowLeft)
	tab.Until(fmt.Sprintf(`Number(document.activeElement.getAttribute("aria-valuenow")) < %s`, before))
}

// instead returns answer's value for a path of prod's; if that is nil, f answers.
func instead(f http.Handler, path string, answer func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/clusters/prod/"+path) {
			a := answer()
			if a != nil {
				_ = json.NewEncoder(w).Encode(a)
				return
			}
		}
		f.ServeHTTP(w, r)
	})
}

// pageEnd checks the newest point without a log, which is a backup. A time in whole seconds would lie before it, and
// mean the one before.
func pageEnd(t *testing.T, chromium context.Context) {
	f := newFakeService()
	h := instead(f, "windows", func() any { return document.Recovery{Windows: []document.Window{}, Gaps: []document.Gap{}} })
	tab := visit(t, chromium, h, "#/clusters/prod", browser.Look{})
	tab.Until(`document.getElementById("command") && document.querySelector(".timeline .stored, .timeline .booted")`)
	browser.Value[bool](tab, `Boolean(document.querySelector(".timeline svg").focus() ?? true)`)
	tab.Do(chromedp.KeyEvent(kb.End))
	tab.Until(`/time=|backup=/.test(location.hash)`)
	at := browser.Value[string](tab, `location.hash`)
	if !strings.Contains(at, "backup="+string(f.backups().Backups[0].ID)) {
		t.Errorf("the newest point is a backup, and the address is %s", at)
	}
}

// pageNewBackup checks that the page asks again once the service's cached answer is old.
func pageNewBackup(t *testing.T, chromium context.Context) {
	f := newFakeService()
	var asked atomic.Int32
	h := instead(f, "backups", func() any {
		if asked.Add(1) > 1 {
			return nil
		}
		return document.NewList()
	})
	tab := visit(t, chromium, h, "#/clusters/prod", browser.Look{})
	tab.Until(`document.querySelector("#backups summary")?.textContent === "All 0 backups as a list"`)
	tab.Until(`document.querySelector("#backups summary").textContent !== "All 0 backups as a list"`)
}

// pageNotLooked checks that before the repositories were checked the page shows neither problems nor success.
func pageNotLooked(t *testing.T, chromium context.Context) {
	f := newFakeService()
	one := f.well("prod", time.Hour)
	one.Standings = []condition.Standing{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/clusters") {
			_ = json.NewEncoder(w).Encode(document.ServeStatus{Clusters: []document.ServedCluster{one}})
			return
		}
		f.ServeHTTP(w, r)
	})
	tab := visit(t, chromium, h, "", browser.Look{})
	tab.Until(`document.querySelectorAll("table.fleet tbody tr").length === 1`)
	said := browser.Value[string](tab, `document.querySelector(".verdict").innerText`)
	if said != "Still looking at 1 of 1 cluster." {
		t.Errorf("nobody has looked, and the page says %q", said)
	}
}

// pageRestores checks that a restore is shown while it runs.
func pageRestores(t *testing.T, chromium context.Context) {
	f := newFakeService()
	f.restores = []document.ServedRestore{
		{Namespace: "payments", Name: "done", StatefulSet: "etcd", Phase: "Succeeded", Ended: true, Since: f.ago(time.Hour)},
		{
			Namespace: "shop", Name: "all-lost", StatefulSet: "etcd", Phase: "Sealing", Since: f.ago(5*time.Minute + 10*time.Second), MembersDone: "2/3",
			Message: "the pod of Job etcd-seal has not started: <b>Pending</b>",
		},
		{Namespace: "shop", Name: "waits", StatefulSet: "other", Phase: "Pending"},
	}
	tab := visit(t, chromium, f, "", browser.Look{})
	tab.Until(fleetIsThere)
	said := browser.Value[[]string](tab, `[...document.querySelectorAll("#restores p")].map((p) => p.innerText)`)
	want := []string{
		"shop/all-lost restores StatefulSet etcd: Sealing for 5 min, 2/3 members done. the pod of Job etcd-seal has not started: <b>Pending</b>",
		"shop/waits restores StatefulSet other: Pending",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the page shows %q, want %q", said, want)
	}
	f.set(func() { f.restores = nil })
	browser.Value[bool](tab, lookNow)
	tab.Until(`document.querySelectorAll("#restores p").length === 0`)
}

// pageThousand checks that of a thousand clusters the one with a problem is the first, and that each can be found by
// its name, also while all others change.
func pageThousand(t *testing.T, chromium context.Context) {
	f := newFakeService()
	var asked atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/clusters") {
			all := []document.ServedCluster{}
			for n := range int64(999) {
				all = append(all, f.well(fmt.Sprintf("cluster-%03d", n), time.Duration(n+asked.Load())*time.Second))
			}
			asked.Add(1)
			_ = json.NewEncoder(w).Encode(document.ServeStatus{Clusters: append(all, f.prod())})
			return
		}
		f.ServeHTTP(w, r)
	})
	tab := visit(t, chromium, h, "", browser.Look{})
	tab.Until(`document.querySelectorAll("table.fleet tbody tr").length === 1000`)
	first := browser.Value[string](tab, `document.querySelector("table.fleet tbody th").innerText`)
	if first != "prod" {
		t.Errorf("the first is %q", first)
	}
	tab.Do(chromedp.SendKeys(chromedp.ID("filter"), "r-73"))
	browser.Value[bool](tab, lookNow)
	tab.Until(`performance.getEntriesByType("resource").filter((r) => r.name.endsWith("/clusters")).length > 1`)
	tab.Do(chromedp.SendKeys(chromedp.ID("filter"), "1"))
	tab.Until(`document.querySelectorAll("table.fleet tbody tr").length === 1 && document.activeElement.id === "filter"`)
	tab.Do(chromedp.Click(chromedp.CSS("#open-cluster-731")))
	tab.Until(`document.querySelector("h1").innerText === "cluster-731"`)
}

// pageNearest checks that an unreachable moment leads to the nearest reachable one.
func pageNearest(t *testing.T, chromium context.Context) {
	f := newFakeService()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/plan") && r.URL.Query().Get("best") != "true" {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(document.Problem{Message: "it cannot be reached", Cure: "the nearest is another"})
			return
		}
		f.ServeHTTP(w, r)
	})
	tab := visit(t, chromium, h, "#/clusters/prod?revision=4711", browser.Look{})
	tab.Until(`document.getElementById("nearest")`)
	tab.Do(chromedp.Click(chromedp.ID("nearest")))
	tab.Until(commandShown + `?.includes("--to-revision 4711")`)
}

func pageTyped(t *testing.T, chromium context.Context) {
	tab := visit(t, chromium, newFakeService(), "#/clusters/prod?revision=4711", browser.Look{})
	tab.Until(clusterIsThere)
	for _, test := range []struct{ typed, want string }{
		{"", "--to-revision 4711"}, // of the address
		{"2026-11-20T10:00:00+02:00", "--to 2026-11-20T08:00:00Z"},
		{"2026-11-20 10:00:00Z", "--to 2026-11-20T10:00:00Z"},
		{"815", "--to-revision 815"},
		{"20261120T100000Z-000000000000032f", "prod 20261120T100000Z-000000000000032f"},
		{"2026-11-20 10:00:00", "has no zone"},
		{"2w ago", "--to 20"},
		{"yesterday", "is no time"},
		{"1y1w ago", "--to 20"},
		{"ago", "is no time"},
		{"1d2h ago", "--to 20"},
	} {
		if test.typed != "" {
			tab.Do(chromedp.SetValue(chromedp.ID("target"), test.typed), chromedp.SendKeys(chromedp.ID("target"), kb.Enter))
		}
		tab.Until(fmt.Sprintf(`document.querySelector(".answer").textContent.includes(%q)`, test.want))
	}
}

// pageText checks that text from an attacker in the bucket is shown literally.
func pageText(t *testing.T, chromium context.Context) {
	const markup = `<img src=x onerror="document.title='broken'"><b>bold</b>`
	f := newFakeService()
	f.tail = markup
	tab := visit(t, chromium, f, "#/clusters/prod", browser.Look{})
	tab.Until(clusterIsThere)
	tab.Do(chromedp.Click(chromedp.CSS("#backups summary")))
	seen := browser.Value[int](tab, fmt.Sprintf(`document.body.innerText.split(%q).length - 1`, markup))
	if seen < 3 {
		t.Errorf("the markup is shown %d times, it is in a problem, a pin and a note", seen)
	}
	made := browser.Value[int](tab, `document.querySelectorAll("main img, main b").length`)
	if made != 0 {
		t.Errorf("%d elements were made of it", made)
	}
	title := browser.Value[string](tab, `document.title`)
	if title != "prod · etcd-dr" {
		t.Errorf("the title is %q", title)
	}
}

// pageOrders checks that each order asks for confirmation, and that Escape cancels it. A browser reports late that a
// dialog was closed: another dialog that has opened meanwhile must still be answered.
func pageOrders(t *testing.T, chromium context.Context) {
	f := newFakeService()
	tab := visit(t, chromium, f, "#/clusters/prod", browser.Look{})
	tab.Until(clusterIsThere)
	tab.Do(chromedp.Click(chromedp.ID("order-backup")))
	tab.Until(`document.getElementById("ask").open && document.activeElement.textContent === "Leave it"`)
	tab.Do(chromedp.KeyEvent(kb.Escape))
	tab.Until(`!document.getElementById("ask").open`)
	tab.Do(chromedp.Click(chromedp.ID("order-backup")))
	tab.Until(`document.getElementById("ask").open`)
	browser.Value[bool](tab, `document.getElementById("ask").close("no"), document.getElementById("order-drill").click(), true`)
	tab.Do(chromedp.Click(chromedp.CSS("#ask button[value=yes]")))
	tab.Until(`document.body.innerText.includes("Drill now: the service has been told.")`)
	tab.Do(chromedp.Click(chromedp.ID("order-suspend")), chromedp.SendKeys(chromedp.ID("ask-reason"), "new hosts"+kb.Enter))
	tab.Until(`document.body.innerText.includes("Suspend: the service has been told.")`)
	want := []string{"/api/v1/clusters/prod/trigger map[job:drill]", "/api/v1/clusters/prod/suspend map[reason:new hosts]"}
	got := f.ordered()
	if !slices.Equal(got, want) {
		t.Errorf("ordered was %q, want %q", got, want)
	}
}

func pageReader(t *testing.T, chromium context.Context) {
	f := newFakeService()
	f.role = "read"
	tab := visit(t, chromium, f, "#/clusters/prod", browser.Look{})
	tab.Until(`document.body.innerText.includes("Your role is to read.")`)
	n := browser.Value[int](tab, `document.querySelectorAll("[id^=order-]").length`)
	if n != 0 {
		t.Errorf("there are %d buttons", n)
	}
}

// pageToken checks that the page, and not the browser, asks for a token, refuses a wrong one, and drops it with the tab
// or on request. The service is real, except the status of its clusters.
func pageToken(t *testing.T, chromium context.Context) {
	const token = "s3cret"
	file := filepath.Join(t.TempDir(), "tokens")
	err := os.WriteFile(file, fmt.Appendf(nil, "read jo sha256:%x\n", sha256.Sum256([]byte(token))), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	access, err := server.NewAccess(file, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	fleet := newFakeService().clusters()
	service := server.Service{
		Scheduler: &scheduler.Service{}, Page: page.Handler(),
		Status: func() document.ServeStatus { return document.ServeStatus{Clusters: fleet} },
	}
	tab := visit(t, chromium, server.Serve(service, access), "", browser.Look{})
	tab.Do(chromedp.SendKeys(chromedp.ID("token"), "wrong"+kb.Enter))
	tab.Until(`document.body.innerText.includes("does not know this token")`)
	tab.Do(chromedp.SendKeys(chromedp.ID("token"), token+kb.Enter))
	tab.Until(fleetIsThere)
	kept := browser.Value[string](tab, `document.cookie + localStorage.length + location.href`)
	if strings.Contains(kept, token) || !strings.HasPrefix(kept, "0") {
		t.Errorf("beyond the tab is kept: %s", kept)
	}
	tab.Do(chromedp.Click(chromedp.ID("forget")))
	tab.Until(`document.getElementById("token") !== null`)
}

// pageAway checks that an unreachable service leaves the page unchanged with a message, and that everything is as
// before when it is back.
func pageAway(t *testing.T, chromium context.Context) {
	f := newFakeService()
	tab := visit(t, chromium, f, "", browser.Look{})
	tab.Until(fleetIsThere)
	f.set(func() { f.away = true })
	browser.Value[bool](tab, lookNow)
	tab.Until(`document.querySelector("[role=alert]").textContent.includes("the service is about to end What you see is of 20")`)
	tab.Until(fleetIsThere)
	f.set(func() { f.away, f.refused = false, "dr.yaml:2: unknown key" })
	browser.Value[bool](tab, lookNow)
	tab.Until(`document.querySelector("[role=alert]").textContent === "" && document.body.innerText.includes("dr.yaml:2: unknown key")`)
}

// pageUnpruned checks that one missing answer hides no other.
func pageUnpruned(t *testing.T, chromium context.Context) {
	f := newFakeService()
	withoutPlan := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/retention") {
			f.answer(w, r, func(*http.Request) any { return nil })
			return
		}
		f.ServeHTTP(w, r)
	})
	tab := visit(t, chromium, withoutPlan, "#/clusters/prod", browser.Look{})
	tab.Until(`document.querySelector(".timeline rect.window") && document.body.innerText.includes("What pruning drops next is not known: ")`)
}

// pageLooks checks some properties of the layout; the pictures are for people.
func pageLooks(t *testing.T, chromium context.Context, look browser.Look) {
	scheme := map[bool]string{false: "light", true: "dark"}[look.Dark]
	for _, view := range []struct{ name, address, ready string }{
		{"fleet", "", fleetIsThere}, {"cluster", "#/clusters/prod", clusterIsThere},
	} {
		tab := visit(t, chromium, newFakeService(), view.address, look)
		tab.Until(view.ready)
		over := browser.Value[int](tab, `document.documentElement.scrollWidth - innerWidth`)
		if over > 0 {
			t.Errorf("%s is %d pixels wider than the window", view.name, over)
		}
		for what, n := range browser.Value[map[string]int](tab, accessible) {
			if n != 0 {
				t.Errorf("%s: %s: %d", view.name, what, n)
			}
		}
		ground := browser.Value[string](tab, `getComputedStyle(document.documentElement).backgroundColor`)
		want := map[bool]string{false: "rgb(246, 246, 243)", true: "rgb(18, 21, 24)"}[look.Dark]
		if ground != want {
			t.Errorf("%s is on %s, in %s on %s", view.name, ground, scheme, want)
		}
		keepPicture(t, fmt.Sprintf("%s-%d-%s", view.name, look.Width, scheme), tab.Page)
	}
}

// keepPicture saves a picture if picturesVariable is set.
func keepPicture(t *testing.T, name string, take func() []byte) {
	t.Helper()
	dir := os.Getenv(picturesVariable)
	if dir == "" {
		return
	}
	err := os.WriteFile(filepath.Join(dir, name+".png"), take(), 0o644)
	if err != nil {
		t.Fatal(err)
	}
}

// accessible counts violations of accessibility rules.
const accessible = `(() => {
	const all = (selector) => [...document.querySelectorAll(selector)];
	const headings = all("h1, h2, h3, h4").map((h) => Number(h.tagName[1]));
	const ids = all("[id]").map((e) => e.id);
	const small = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.width < 24 || r.height < 24); };
	return {
		"fields without a label": all("input, select").filter((e) => !e.labels.length).length,
		"buttons, links without a name": all("button, a").filter((e) => !(e.getAttribute("aria-label") ?? e.textContent).trim()).length,
		"headings of the first rank too many": headings.filter((h) => h === 1).length - 1,
		"headings that skip a rank": headings.filter((h, i) => h > (headings[i - 1] ?? 0) + 1).length,
		"ids given twice": ids.length - new Set(ids).size,
		"references to nothing": all("[aria-labelledby], [aria-describedby]").filter((e) =>
			!document.getElementById(e.getAttribute("aria-labelledby") ?? e.getAttribute("aria-describedby")) && e.id !== "ask").length,
		"pictures that are neither named nor hidden": all("svg").filter((e) =>
			!e.hasAttribute("aria-label") && e.getAttribute("aria-hidden") !== "true").length,
		"cells without a row's head": all("tbody tr").filter((e) => !e.querySelector("th[scope=row]")).length,
		"buttons too small to hit": all("button, input, select").filter(small).length,
		"languages that are missing": document.documentElement.lang ? 0 : 1,
	};
})()`

// TestPageOfServe tests the page of a real service: orders take effect, and the page shows the service's status.
func TestPageOfServe(t *testing.T) {
	withServers(t)
	chromium := browser.Start(t)
	etcd := servers.Start(t, servers.Options{})
	config := command.Config(t, fmt.Sprintf(`
repositories:
  main: {url: file://%s}
clusters:
  prod: {etcd: {endpoints: [%s]}, repositories: [main], schedule: {cron: "@daily"}, retention: {last: 1}}
`, filepath.Join(t.TempDir(), "repo"), strings.Join(etcd.Endpoints(), ", ")))
	service := command.Serve(t, nil, config)
	service.Until(t, "the first backup", func(d document.ServeStatus) bool { return len(d.Clusters) == 1 && d.Clusters[0].Last != nil })

	tab := browser.Open(t, chromium, service.URL, browser.Look{})
	tab.Do(chromedp.Navigate(service.URL))
	tab.Until(`document.querySelectorAll("table.fleet tbody tr").length === 1`)
	tab.Do(chromedp.Click(chromedp.ID("open-prod")))
	tab.Until(commandShown)
	shown, want := browser.Value[string](tab, commandShown), answered(t, tab)
	if shown != want || !strings.Contains(shown, "--dry-run") {
		t.Errorf("the page shows\n%s\nthe service says\n%s", shown, want)
	}
	first := browser.Value[string](tab, `fetch("api/v1/clusters/prod").then((r) => r.json()).then((c) => c.last.id)`)
	tab.Do(chromedp.Click(chromedp.ID("order-backup")), chromedp.Click(chromedp.CSS("#ask button[value=yes]")))
	service.Until(t, "the backup that was ordered", func(d document.ServeStatus) bool { return string(d.Clusters[0].Last.ID) != first })
	browser.Value[bool](tab, lookNow)
	tab.Until(`document.getElementById("kept") && document.body.innerText.includes("succeeded")`)
	quiet(t, tab, service.URL)
	said := tab.Console()
	if len(said) > 0 {
		t.Errorf("the console says: %q", said)
	}
	service.Signal(t, syscall.SIGTERM)
	service.Wait(t)
	browser.Value[bool](tab, lookNow)
	tab.Until(`document.querySelector("[role=alert]").textContent.includes("does not answer")`)
}
