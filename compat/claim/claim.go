// Package claim tries sentences about a server and prints one line for each: `ok`, or `FAIL` with the reason.
package claim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"
)

const (
	// patience bounds every claim that does not bound itself: a healthy server needs a few seconds at most.
	patience = 60 * time.Second
	// first and longest are how long Until waits between two tries: what waits for long, or in great number, asks seldom.
	first, longest = 10 * time.Millisecond, 500 * time.Millisecond
)

// Claim is a sentence about the server and the function that tries it.
type Claim struct {
	Says string
	Try  func(context.Context) error
	// Within is how long it may take; a minute if it is not said.
	Within time.Duration
}

// All tries every claim, each with a bounded time, and ends the program with 1 if one failed.
func All(ctx context.Context, claims []Claim) {
	failed := false
	for _, claim := range claims {
		if err := claim.attempt(ctx); err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", claim.Says, err)
			continue
		}
		fmt.Println("ok", claim.Says)
	}
	if failed {
		os.Exit(1)
	}
}

func (c Claim) attempt(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, cmp.Or(c.Within, patience))
	defer done()
	return c.Try(bounded)
}

// Impossible ends the program, because nothing could be claimed.
func Impossible(err error) {
	fmt.Println("FAIL", err)
	os.Exit(1)
}

// Until tries until something holds or the time is over, and says what was wrong last.
func Until(ctx context.Context, holds func() error) error {
	for pause := first; ; pause = min(2*pause, longest) {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
