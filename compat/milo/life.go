package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"mica.dev/compat/claim"
	"mica.dev/compat/greeter"
)

const (
	// suspended is the cause that a suspended project's refusals have.
	suspended = "ProjectSuspended"
	group     = "resourcemanager.miloapis.com/v1alpha1"
)

func project(name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "Project"}}
	made.SetName(name)
	return made
}

func suspension(project string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "ProjectSuspension", "spec": map[string]any{
		"projectRef": map[string]any{"name": project}, "reason": "Billing", "reinstateAuthority": "Operator",
	}}}
	made.SetName(project)
	return made
}

// engages makes the projects that stay.
func (w *world) engages(ctx context.Context) error {
	return each(w.stay, func(project string) error { return w.comes(ctx, project) })
}

// comes makes a project, which both fleets engage, and something in it that they greet and hold.
func (w *world) comes(ctx context.Context, name string) error {
	if err := w.view.Create(ctx, project(name)); err != nil {
		return err
	}
	if err := w.saw(ctx, name, engaged); err != nil {
		return err
	}
	return w.greets(ctx, name, "first")
}

// saw waits until this is what both fleets saw of a project.
func (w *world) saw(ctx context.Context, project string, wanted ...string) error {
	for _, fleet := range w.fleets {
		if err := fleet.until(ctx, project, wanted...); err != nil {
			return err
		}
	}
	return nil
}

// greets makes an object in a project that both fleets greet, and without whom it will not go.
func (w *world) greets(ctx context.Context, project, name string) error {
	plane, err := w.within(project)
	if err != nil {
		return err
	}
	if err := plane.Create(ctx, greeter.Object(name, w.fleets[0].greeter, w.fleets[1].greeter)); err != nil {
		return err
	}
	for _, fleet := range w.fleets {
		if err := fleet.greeter.Greeted(ctx, plane, name, project); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) lived(ctx context.Context) error {
	return each(w.lives, func(project string) error { return w.life(ctx, project) })
}

// life is a project from its beginning to its end.
func (w *world) life(ctx context.Context, name string) error {
	if err := w.comes(ctx, name); err != nil {
		return fmt.Errorf("it comes: %w", err)
	}
	if err := w.root.Create(ctx, suspension(name)); err != nil {
		return err
	}
	if err := w.saw(ctx, name, engaged, letGo); err != nil {
		return fmt.Errorf("it is suspended: %w", err)
	}
	if err := w.refuses(ctx, name); err != nil {
		return err
	}
	if err := w.root.Delete(ctx, suspension(name)); err != nil {
		return err
	}
	if err := w.saw(ctx, name, engaged, letGo, engaged); err != nil {
		return fmt.Errorf("it is lifted: %w", err)
	}
	if err := w.greets(ctx, name, "second"); err != nil {
		return err
	}
	if err := w.root.Delete(ctx, project(name)); err != nil {
		return err
	}
	// It goes when both have let go of what they hold in it.
	if err := w.saw(ctx, name, engaged, letGo, engaged, letGo); err != nil {
		return fmt.Errorf("it goes: %w", err)
	}
	return w.gone(ctx, name)
}

// refuses sees that a suspended project says so.
func (w *world) refuses(ctx context.Context, name string) error {
	plane, err := w.within(name)
	if err != nil {
		return err
	}
	err = plane.Create(ctx, greeter.Object("refused"))
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, suspended) {
		return fmt.Errorf("a suspended project answered %v", err)
	}
	return nil
}

func (w *world) gone(ctx context.Context, name string) error {
	return claim.Until(ctx, func() error {
		err := w.root.Get(ctx, client.ObjectKey{Name: name}, project(name))
		if !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is still there"), err)
		}
		return nil
	})
}

func (w *world) stays(ctx context.Context) error {
	return each(w.stay, func(project string) error {
		if err := w.greets(ctx, project, "second"); err != nil {
			return err
		}
		return w.saw(ctx, project, engaged)
	})
}

func (w *world) returns(ctx context.Context) error {
	return each(w.lives[:staying], func(name string) error {
		if err := w.view.Create(ctx, project(name)); err != nil {
			return err
		}
		if err := w.saw(ctx, name, engaged, letGo, engaged, letGo, engaged); err != nil {
			return err
		}
		plane, err := w.within(name)
		if err != nil {
			return err
		}
		left := &corev1.ConfigMapList{}
		if err := plane.List(ctx, left, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, one := range left.Items {
			if one.Name != "kube-root-ca.crt" {
				return fmt.Errorf("it holds %s of the one before", one.Name)
			}
		}
		return w.greets(ctx, name, "first")
	})
}
