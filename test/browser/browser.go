// Package browser opens pages in headless Chromium, as a person would, and records the console and the requests, which
// a person would not see.
package browser

import (
	"cmp"
	"context"
	"iter"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// program is Debian's name for it.
const program = "chromium"

// Start returns a context in which tabs can be opened, until t ends. Without Chromium it skips t; with CI=true it fails
// t.
func Start(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: test/tools/build.sh installs it", err)
		}
		t.Skipf("%v: test/tools/build.sh installs it", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		// Chromium refuses to run as root with its sandbox. Here it opens only our own page.
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	err = chromedp.Do(ctx)
	if err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return ctx
}

// Look configures the appearance of a tab. Zero is a light page, in UTC, in a window of 1280 by 900 pixels.
type Look struct {
	Width, Height int64 // pixels
	Dark          bool
	Zone          string // of the person's clock
}

// Tab is a tab with its own storage.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	console  []string
	requests []string
}

// Open opens a tab in the browser of ctx, until t ends. Pages of origin may use the clipboard.
func Open(t testing.TB, ctx context.Context, origin string, look Look) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	tab := &Tab{t: t, ctx: ctx}
	var listening sync.WaitGroup
	t.Cleanup(func() { cancel(); listening.Wait() })
	scheme, zone := "light", cmp.Or(look.Zone, "UTC")
	if look.Dark {
		scheme = "dark"
	}
	// The tab ends with the context of its first use, which must not be that of a single step.
	err := chromedp.Do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tab.Do(chromedp.EmulateViewport(cmp.Or(look.Width, 1280), cmp.Or(look.Height, 900)))
	order(tab, network.Enable, network.EnableParams{})
	order(tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
	order(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	// Each of several tabs must behave as if it had the focus.
	order(tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		permission := browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted, Origin: origin,
			BrowserContextID: chromedp.FromContext(ctx).BrowserContextID,
		}
		_, err := chromedp.CallBrowser(ctx, browser.SetPermission, permission)
		if err != nil {
			t.Fatal(err)
		}
	}
	console, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	listening.Go(func() { note(tab, &tab.console, console, chromedp.ConsoleMessage.String) })
	listening.Go(func() {
		note(tab, &tab.requests, requests, func(r network.EventRequestWillBeSent) string { return r.Request.URL })
	})
	return tab
}

func note[E any](tab *Tab, to *[]string, events iter.Seq2[E, error], text func(E) string) {
	for event, err := range events {
		if err != nil {
			return // the tab is closed
		}
		tab.mu.Lock()
		*to = append(*to, text(event))
		tab.mu.Unlock()
	}
}

func order[P, R any](tab *Tab, command cdp.Command[P, R], params P) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, command, params)
	if err != nil {
		tab.t.Fatalf("%s: %v", command.Method, err)
	}
}

// patience is for a machine that is busy with other tests.
const patience = 3 * time.Minute

// Do executes steps in order, and fails the test at the first error.
func (tab *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	for i, step := range steps {
		err := chromedp.Do(ctx, step)
		if err != nil {
			tab.t.Fatalf("step %d: %v; the page says:\n%s\nits console: %q", i+1, err, tab.text(), tab.Console())
		}
	}
}

// text returns the text of the page, for test messages.
func (tab *Tab) text() string {
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// Until waits until an expression of JavaScript is true, even across a reload or another page.
func (tab *Tab) Until(expression string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+expression+")"))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tab.t.Fatalf("waited for %s: %v; the page says:\n%s\nits console: %q", expression, err, tab.text(), tab.Console())
		}
	}
}

// Value returns the value of an expression of JavaScript in tab; for a promise, its result.
func Value[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tab.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Page returns a picture of the whole page as PNG, including the part below the window's edge.
func (tab *Tab) Page() []byte {
	tab.t.Helper()
	return tab.picture(chromedp.FullScreenshot(100))
}

// Window returns a picture of the window as PNG.
func (tab *Tab) Window() []byte {
	tab.t.Helper()
	return tab.picture(chromedp.CaptureScreenshot())
}

func (tab *Tab) picture(take chromedp.Action[[]byte]) []byte {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, take)
	if err != nil {
		tab.t.Fatal(err)
	}
	return png
}

// Console returns the messages in the console: output of scripts, uncaught errors, violations of the policy.
func (tab *Tab) Console() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.console)
}

// Requests returns the URLs that the tab has requested.
func (tab *Tab) Requests() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.requests)
}
