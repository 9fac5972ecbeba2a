package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// proxy passes bytes on, and cuts what it carries wherever it happens to be: between events or in the middle of one.
type proxy struct {
	listener net.Listener
	target   string
	life     time.Duration
	mutex    sync.Mutex
	open     map[*net.TCPConn]struct{}
}

func newProxy(target string, life time.Duration) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, life: life, open: map[*net.TCPConn]struct{}{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() { p.listener.Close() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(client.(*net.TCPConn))
	}
}

func (p *proxy) carry(client *net.TCPConn) {
	defer client.Close()
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer upstream.Close()
	p.mutex.Lock()
	p.open[client] = struct{}{}
	p.mutex.Unlock()
	defer func() {
		p.mutex.Lock()
		delete(p.open, client)
		p.mutex.Unlock()
	}()
	go func() {
		io.Copy(upstream, client)
		upstream.Close()
	}()
	io.Copy(client, upstream)
}

// cutting cuts all connections again and again until the context ends. Half of the cuts are resets.
func (p *proxy) cutting(ctx context.Context, random *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.life/4 + time.Duration(random.Int64N(int64(p.life*3/4)))):
		}
		reset := random.IntN(2) == 0
		p.mutex.Lock()
		for client := range p.open {
			if reset {
				client.SetLinger(0)
			}
			client.Close()
		}
		p.mutex.Unlock()
	}
}
