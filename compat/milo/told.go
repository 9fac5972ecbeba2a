package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"mica.dev/compat/claim"
)

const (
	projectKind      = "projects"
	controlPlaneKind = "projectcontrolplanes"
)

// kinds are what says that projects are ready, and by which condition.
var kinds = map[string]struct {
	group, condition string
}{
	projectKind:      {"resourcemanager.miloapis.com", "Ready"},
	controlPlaneKind: {"infrastructure.miloapis.com", "ControlPlaneReady"},
}

// told is what the server tells of projects: for each kind and name, when it became ready, and when it ceased to be or went.
type told struct {
	lock    sync.Mutex
	history map[string][]string
	ready   map[string]bool
	failed  error
}

// listen watches both kinds from now on.
func listen(ctx context.Context, config *rest.Config) (*told, error) {
	t := &told{history: map[string][]string{}, ready: map[string]bool{}}
	dynamic, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for kind, is := range kinds {
		resource := schema.GroupVersionResource{Group: is.group, Version: "v1alpha1", Resource: kind}
		watch, err := dynamic.Resource(resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		go func() {
			for event := range watch.ResultChan() {
				t.hear(kind, is.condition, event)
			}
		}()
	}
	return t, nil
}

func (t *told) hear(kind, condition string, event watch.Event) {
	t.lock.Lock()
	defer t.lock.Unlock()
	object, is := event.Object.(*unstructured.Unstructured)
	if !is || event.Type == watch.Error {
		t.failed = fmt.Errorf("the watch of %s: %v", kind, event.Object)
		return
	}
	at := kind + "/" + object.GetName()
	ready := event.Type != watch.Deleted && isTrue(object, condition)
	if ready == t.ready[at] {
		return
	}
	t.ready[at] = ready
	what := map[bool]string{true: engaged, false: letGo}[ready]
	t.history[at] = append(t.history[at], what)
}

func isTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(one any) bool {
		has, is := one.(map[string]any)
		return is && has["type"] == condition && has["status"] == "True"
	})
}

// of is what a fleet should have seen of a project.
func (t *told) of(kind, project string) ([]string, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return slices.Clone(t.history[kind+"/"+project]), t.failed
}

func (w *world) agrees(ctx context.Context) error {
	wanted := []string{engaged, letGo, engaged, letGo}
	for _, fleet := range w.fleets {
		for _, project := range w.lives {
			err := claim.Until(ctx, func() error {
				happened, err := w.told.of(fleet.kind, project)
				if saw := fleet.saw(project); err == nil && (!slices.Equal(happened, wanted) || !slices.Equal(saw, happened)) {
					err = fmt.Errorf("%s saw %q, what happened is %q", fleet.name, strings.Join(saw, ", "), strings.Join(happened, ", "))
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", project, err)
			}
		}
		if count := len(fleet.history); count != len(w.lives)+len(w.stay) {
			return fmt.Errorf("%s engaged %d projects", fleet.name, count)
		}
	}
	return nil
}

// watched compares engagements with the server's audit log: who engages a project watches it, and who lets it go does so no more.
// A connection may be cut on a busy machine: then a watch is begun again, and has ended before.
func (w *world) watched(ctx context.Context) error {
	return claim.Until(ctx, func() error {
		counts, err := watches(w.audit)
		if err != nil {
			return err
		}
		var wrong error
		for _, fleet := range w.fleets {
			for _, project := range append(w.lives, w.stay...) {
				engagements, open := 2, 0
				if slices.Contains(w.stay, project) {
					engagements, open = 1, 1
				}
				count := counts[watcher{fleet.agent(), project}]
				if count.begun < engagements || count.begun-count.ended != open {
					wrong = errors.Join(wrong, fmt.Errorf("%s: %s began %d watches, and %d have ended", project, fleet.name, count.begun, count.ended))
				}
			}
		}
		return wrong
	})
}

// watcher is somebody who watches a project.
type watcher struct{ agent, project string }

type count struct{ begun, ended int }

// watches counts the watches in projects that were let in, from an audit log.
func watches(path string) (map[watcher]count, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts := map[watcher]count{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var event struct {
			Stage, UserAgent string
			Annotations      map[string]string
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, err
		}
		if event.ResponseStatus.Code != 200 {
			continue
		}
		who := watcher{event.UserAgent, event.Annotations["platform.miloapis.com/scope.name"]}
		count := counts[who]
		if event.Stage == "ResponseStarted" {
			count.begun++
		} else {
			count.ended++
		}
		counts[who] = count
	}
	return counts, lines.Err()
}
