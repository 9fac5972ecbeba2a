package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is a process of ours on a directory of its own, which it keeps when it is started again.
type server struct {
	binary, store, directory, address string
	process                           *exec.Cmd
}

func startServer(ctx context.Context, binary, store string) (*server, error) {
	directory, err := os.MkdirTemp("", "mica-reconnect-")
	if err != nil {
		return nil, err
	}
	// A fixed port, because clients come back to it.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{binary: binary, store: store, directory: directory, address: free.Addr().String()}
	free.Close()
	if err := s.start(ctx); err != nil {
		os.RemoveAll(directory)
		return nil, err
	}
	return s, nil
}

// start returns when the server says that it is ready.
func (s *server) start(ctx context.Context) error {
	s.process = exec.Command(s.binary, "up", "--data-dir", s.directory, "--listen", s.address, "--profile", "kubernetes", "--store", s.store)
	log, err := os.OpenFile(filepath.Join(s.directory, "server.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process.Stderr = log
	out, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		ready <- lines.Scan()
		for lines.Scan() {
		}
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("the server did not become ready: %w", ctx.Err())
	case ok := <-ready:
		if !ok {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the server ended: %s", said[max(0, len(said)-2000):])
		}
		return nil
	}
}

func (s *server) restart(ctx context.Context, how syscall.Signal) error {
	if err := s.process.Process.Signal(how); err != nil {
		return err
	}
	state, err := s.process.Process.Wait()
	if err != nil {
		return err
	}
	if how == syscall.SIGTERM && !state.Success() {
		return fmt.Errorf("asked to end, the server ended with %v", state)
	}
	return s.start(ctx)
}

func (s *server) remove() {
	s.process.Process.Kill()
	s.process.Process.Wait()
	os.RemoveAll(s.directory)
}

// config is for a place of the server, straight or through another address.
func (s *server) config(address, prefix string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.directory, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.Host = "https://" + address + prefix
	config.QPS = -1
	return config, nil
}
