package spec_test

import (
	"fmt"
	"log"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// In the night to 2026-03-29 clocks in Berlin skip the hour from 2:00 to 3:00.
func ExampleSchedule_Next() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	s, err := spec.ParseSchedule("30 2 * * *", berlin, 0, "prod")
	if err != nil {
		log.Fatal(err)
	}
	at := time.Date(2026, time.March, 28, 0, 0, 0, 0, berlin)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.In(berlin).Format(time.RFC3339))
	}
	// Output:
	// 2026-03-28T02:30:00+01:00
	// 2026-03-29T03:00:00+02:00
	// 2026-03-30T02:30:00+02:00
}
