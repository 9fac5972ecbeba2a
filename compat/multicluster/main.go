// Command multicluster runs a controller on multicluster-runtime, unmodified, with its kubeconfig provider over planes of a
// server: each plane is a cluster that a Secret in root names. It prints one line for each claim, `ok` or `FAIL` with the reason,
// and ends with 1 if one failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"mica.dev/compat/claim"
	"mica.dev/compat/greeter"
)

// object is what is greeted in every plane.
const object = "greeted"

// world is what the claims have at hand: root, and the planes by name.
type world struct {
	root     client.Client
	manager  mcmanager.Manager
	greeter  *greeter.Greeter
	planes   map[string]client.Client
	contents map[string][]byte
}

func main() {
	// controller-runtime has a flag of the same name in the usual set.
	flags := flag.NewFlagSet("multicluster", flag.ExitOnError)
	root := flags.String("kubeconfig", "", "the management cluster: root")
	planes := flags.String("planes", "", "a directory with a kubeconfig for each plane, named as the plane")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := begin(ctx, *root, *planes)
	if err != nil {
		claim.Impossible(fmt.Errorf("the manager starts: %w", err))
	}
	claim.All(ctx, []claim.Claim{
		{Says: "the provider engages every plane that a secret names", Try: w.engages},
		{Says: "a reconciler writes into the plane that an object came from", Try: w.reconciles},
		{Says: "a plane whose secret goes is disengaged, and the others go on", Try: w.disengages},
		{Says: "a plane whose secret comes back is engaged and caught up with", Try: w.engagesAgain},
	})
}

func begin(ctx context.Context, root, directory string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", root)
	if err != nil {
		return nil, err
	}
	w := &world{planes: map[string]client.Client{}, contents: map[string][]byte{}}
	if w.root, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(directory, "*"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("there are planes"))
	}
	for _, file := range files {
		if err := w.add(file); err != nil {
			return nil, err
		}
	}
	provider := kubeconfig.New(kubeconfig.Options{Namespace: greeter.Namespace})
	options := mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	if w.manager, err = mcmanager.New(config, provider, options); err != nil {
		return nil, err
	}
	if err := provider.SetupWithManager(ctx, w.manager); err != nil {
		return nil, err
	}
	if w.greeter, err = greeter.New("greeter", w.manager); err != nil {
		return nil, err
	}
	go func() {
		if err := w.manager.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the manager ended:", err)
		}
	}()
	return w, nil
}

func (w *world) add(file string) error {
	name := filepath.Base(file)
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return err
	}
	w.contents[name] = content
	w.planes[name], err = client.New(config, client.Options{})
	return err
}

func (w *world) secret(name string) *corev1.Secret {
	labels := map[string]string{kubeconfig.DefaultKubeconfigSecretLabel: "true"}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: greeter.Namespace, Name: name, Labels: labels},
		Data:       map[string][]byte{kubeconfig.DefaultKubeconfigSecretKey: w.contents[name]},
	}
}

func (w *world) engages(ctx context.Context) error {
	for name := range w.planes {
		if err := w.root.Create(ctx, w.secret(name)); err != nil {
			return err
		}
	}
	for name := range w.planes {
		if err := claim.Until(ctx, func() error { return w.engaged(ctx, name) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *world) engaged(ctx context.Context, name string) error {
	_, err := w.manager.GetCluster(ctx, multicluster.ClusterName(name))
	return err
}

func (w *world) reconciles(ctx context.Context) error {
	for name := range w.planes {
		if err := w.create(ctx, name); err != nil {
			return err
		}
	}
	for name := range w.planes {
		if err := w.greeted(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) create(ctx context.Context, plane string) error {
	return w.planes[plane].Create(ctx, greeter.Object(object))
}

func (w *world) greeted(ctx context.Context, plane string) error {
	return w.greeter.Greeted(ctx, w.planes[plane], object, plane)
}

// leaves is the plane that goes and comes back: the first by name.
func (w *world) leaves() string {
	return slices.Min(slices.Collect(maps.Keys(w.planes)))
}

func (w *world) disengages(ctx context.Context) error {
	gone := w.leaves()
	if err := w.root.Delete(ctx, w.secret(gone)); err != nil {
		return err
	}
	err := claim.Until(ctx, func() error {
		if err := w.engaged(ctx, gone); !errors.Is(err, multicluster.ErrClusterNotFound) {
			return fmt.Errorf("%s is still there: %v", gone, err)
		}
		return nil
	})
	for name := range w.planes {
		err = errors.Join(err, w.again(ctx, name))
		if name != gone {
			err = errors.Join(err, w.greeted(ctx, name))
		}
	}
	return err
}

// again makes a plane's object anew, without a greeting.
func (w *world) again(ctx context.Context, plane string) error {
	if err := w.planes[plane].Delete(ctx, greeter.Object(object)); err != nil {
		return err
	}
	return w.create(ctx, plane)
}

func (w *world) engagesAgain(ctx context.Context) error {
	back := w.leaves()
	if err := w.root.Create(ctx, w.secret(back)); err != nil {
		return err
	}
	return w.greeted(ctx, back)
}
