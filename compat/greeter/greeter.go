// Package greeter is a controller on multicluster-runtime for checks: it writes the name of an object's cluster onto the object,
// so that one sees which cluster it was found in, and lets go of objects that are deleted.
package greeter

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"mica.dev/compat/claim"
)

const (
	// Namespace is where the objects are that are greeted.
	Namespace = "default"
	// greeted says that an object is to be greeted.
	greeted = "example.com/greeted"
)

// Greeter is one such controller. Several that look at the same clusters have different names.
type Greeter struct {
	name    string
	manager mcmanager.Manager
}

// New adds a greeter to a manager.
func New(name string, manager mcmanager.Manager) (*Greeter, error) {
	g := &Greeter{name: name, manager: manager}
	err := mcbuilder.ControllerManagedBy(manager).Named(name).For(&corev1.ConfigMap{}).Complete(mcreconcile.Func(g.greet))
	return g, err
}

// mark is the annotation that this greeter writes, and the finalizer that it takes away.
func (g *Greeter) mark() string {
	return "example.com/" + g.name
}

func (g *Greeter) greet(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
	cluster, err := g.manager.GetCluster(ctx, request.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	found := &corev1.ConfigMap{}
	if err := cluster.GetClient().Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Others take their finalizers away from the same list.
	before := client.MergeFromWithOptions(found.DeepCopy(), client.MergeFromWithOptimisticLock{})
	switch {
	case found.Labels[greeted] == "":
		return ctrl.Result{}, nil
	case found.DeletionTimestamp == nil:
		metav1.SetMetaDataAnnotation(&found.ObjectMeta, g.mark(), string(request.ClusterName))
	default:
		controllerutil.RemoveFinalizer(found, g.mark())
	}
	return ctrl.Result{}, client.IgnoreNotFound(cluster.GetClient().Patch(ctx, found, before))
}

// Object is one to be greeted, which stays until all of these greeters let go of it.
func Object(name string, holders ...*Greeter) *corev1.ConfigMap {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: name, Labels: map[string]string{greeted: "please"},
	}}
	for _, holder := range holders {
		made.Finalizers = append(made.Finalizers, holder.mark())
	}
	return made
}

// Greeted waits until an object has been greeted by the name of the cluster that it is in.
func (g *Greeter) Greeted(ctx context.Context, there client.Client, name, cluster string) error {
	return claim.Until(ctx, func() error {
		found := &corev1.ConfigMap{}
		if err := there.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, found); err != nil {
			return err
		}
		if as := found.Annotations[g.mark()]; as != cluster {
			return fmt.Errorf("%s in %s was greeted by %s as %q", name, cluster, g.name, as)
		}
		return nil
	})
}
