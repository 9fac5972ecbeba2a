// Command reconnect checks that clients lose nothing while their connections are cut and the server is killed.
//
// It starts a server of its own, changes objects of root and of a plane, and follows them through a proxy that cuts every
// connection again and again, with raw watches that resume and with informers as controllers have them. Every object counts
// its changes, so that a gap and a repetition both show. It prints one line for each claim, `ok` or `FAIL` with the reason.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	// patience bounds the whole run, which takes some twenty seconds.
	patience = 4 * time.Minute
	// often and seldom are how long connections live at most. Watches can be cut as often as one likes, but an informer that is
	// cut in the middle of a list waits ever longer, up to half a minute, before it tries again.
	often, seldom = 300 * time.Millisecond, 4 * time.Second
	// kills is how often the server is killed while objects change. As often it is asked to end.
	kills = 2
)

func main() {
	binary := flag.String("mica", "", "the server to run")
	store := flag.String("store", "embedded", "where it keeps its data")
	changes := flag.Int("changes", 2400, "how many changes are made in each place")
	seed := flag.Uint64("seed", 1, "what is changed and cut when")
	flag.Parse()
	// Informers log every cut.
	klog.SetLogger(klog.Logger{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	failed, err := run(ctx, *binary, *store, *changes, *seed)
	if err != nil {
		fmt.Printf("FAIL with seed %d: %v\n", *seed, err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, store string, changes int, seed uint64) (failed bool, err error) {
	server, err := startServer(ctx, binary, store)
	if err != nil {
		return false, err
	}
	defer server.remove()
	var proxies []*proxy
	for _, life := range []time.Duration{often, seldom} {
		proxy, err := newProxy(server.address, life)
		if err != nil {
			return false, err
		}
		defer proxy.close()
		proxies = append(proxies, proxy)
	}
	var places []*place
	for _, name := range []string{"root", "plane"} {
		place, err := newPlace(ctx, server, proxies, name)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		places = append(places, place)
	}
	if err := disturbed(ctx, server, proxies, places, changes, seed); err != nil {
		return false, err
	}
	for _, place := range places {
		for _, claim := range place.claims(ctx) {
			if claim.err != nil {
				failed = true
				fmt.Printf("FAIL %s: %s: with seed %d: %v\n", place.name, claim.says, seed, claim.err)
				continue
			}
			fmt.Printf("ok %s: %s\n", place.name, claim.says)
		}
	}
	return failed, nil
}

// disturbed lets the writers write while connections are cut and the server dies and comes back.
func disturbed(ctx context.Context, server *server, proxies []*proxy, places []*place, changes int, seed uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, proxy := range proxies {
		go proxy.cutting(ctx, rand.New(rand.NewPCG(seed, uint64(i))))
	}
	var done atomic.Int64
	var wait sync.WaitGroup
	failures := make(chan error, 100)
	for i, place := range places {
		for j, writer := range place.writers {
			random := rand.New(rand.NewPCG(seed, uint64(100*(i+1)+j)))
			wait.Go(func() {
				for range changes / len(place.writers) {
					if err := writer.change(ctx, random); err != nil {
						failures <- fmt.Errorf("%s: change %s: %w", place.name, writer.kind.resource.Resource, err)
						return
					}
					done.Add(1)
				}
			})
		}
	}
	finished := make(chan struct{})
	go func() { wait.Wait(); close(finished) }()
	total := int64(changes) * int64(len(places))
	for i := range 2 * kills {
		if err := reach(ctx, &done, total*int64(i+1)/(2*kills+1), finished); err != nil {
			return err
		}
		how := syscall.SIGKILL
		if i%2 == 1 {
			how = syscall.SIGTERM
		}
		if err := server.restart(ctx, how); err != nil {
			return err
		}
	}
	select {
	case <-finished:
	case err := <-failures:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the writers did not come to an end: %w", ctx.Err())
	}
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// reach waits until so many changes have been made.
func reach(ctx context.Context, done *atomic.Int64, wanted int64, finished <-chan struct{}) error {
	for done.Load() < wanted {
		select {
		case <-finished:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("only %d changes of %d were made: %w", done.Load(), wanted, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
