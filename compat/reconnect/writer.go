package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// counter is the annotation that every change raises by one. It goes on when an object is made again.
const counter = "example.com/count"

// change is what happened to an object, as its count tells.
type change struct {
	event watch.EventType
	count int
}

// writer changes the objects of one kind, alone, and so knows what must be seen of them.
type writer struct {
	kind    kind
	objects dynamic.ResourceInterface
	names   []string
	history map[string][]change
}

func newWriter(kind kind, objects dynamic.ResourceInterface) *writer {
	w := &writer{kind: kind, objects: objects, history: map[string][]change{}}
	for i := range 8 {
		w.names = append(w.names, fmt.Sprintf("%s-%d", kind.resource.Resource, i))
	}
	return w
}

// change makes one change that has certainly happened once, although the answer to it may be lost.
func (w *writer) change(ctx context.Context, random *rand.Rand) error {
	name := w.names[random.IntN(len(w.names))]
	history := w.history[name]
	next, make := change{event: watch.Added}, w.create
	if len(history) > 0 {
		last := history[len(history)-1]
		next.count = last.count + 1
		if last.event != watch.Deleted {
			next.event = watch.Modified
			make = []func(context.Context, string, int) error{w.update, w.merge, w.apply}[random.IntN(3)]
			if random.IntN(8) == 0 {
				next, make = change{watch.Deleted, last.count}, w.delete
			}
		}
	}
	for {
		err := make(ctx, name, next.count)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if refused := apierrors.APIStatus(nil); asStatus(err, &refused) && refused.Status().Code < 500 &&
			!apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			return err
		}
		happened, err := w.happened(ctx, name, next)
		if err != nil {
			return err
		}
		if happened {
			break
		}
	}
	w.history[name] = append(history, next)
	return nil
}

// happened asks until it knows whether a change whose answer was lost was made.
func (w *writer) happened(ctx context.Context, name string, wanted change) (bool, error) {
	for {
		object, err := w.objects.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return wanted.event == watch.Deleted, nil
		case err == nil && wanted.event == watch.Deleted:
			return false, nil
		case err == nil:
			count, err := countOf(object)
			return count == wanted.count, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *writer) create(ctx context.Context, name string, count int) error {
	_, err := w.objects.Create(ctx, w.object(name, count), metav1.CreateOptions{})
	return err
}

func (w *writer) update(ctx context.Context, name string, count int) error {
	object, err := w.objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	setCount(object, count)
	_, err = w.objects.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (w *writer) merge(ctx context.Context, name string, count int) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, counter, count)
	_, err := w.objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (w *writer) apply(ctx context.Context, name string, count int) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(w.kind.resource.GroupVersion().String())
	object.SetKind(w.kind.name)
	object.SetName(name)
	setCount(object, count)
	_, err := w.objects.Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: "counter", Force: true})
	return err
}

func (w *writer) delete(ctx context.Context, name string, _ int) error {
	return w.objects.Delete(ctx, name, metav1.DeleteOptions{})
}

func (w *writer) object(name string, count int) *unstructured.Unstructured {
	object := (&unstructured.Unstructured{Object: w.kind.body}).DeepCopy()
	object.SetAPIVersion(w.kind.resource.GroupVersion().String())
	object.SetKind(w.kind.name)
	object.SetName(name)
	setCount(object, count)
	return object
}

func setCount(object *unstructured.Unstructured, count int) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[counter] = strconv.Itoa(count)
	object.SetAnnotations(annotations)
}

func countOf(object metav1.Object) (int, error) {
	return strconv.Atoi(object.GetAnnotations()[counter])
}
