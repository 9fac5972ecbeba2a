//! A TCP proxy that breaks connections in chosen ways.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Forward,
    /// What clients say arrives; what servers say does not.
    LoseAnswers,
    /// Closes all connections, and new ones as soon as they are made.
    Refuse,
}

pub struct Proxy {
    pub endpoint: String,
    mode: watch::Sender<Mode>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(target_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (mode, watched) = watch::channel(Mode::Forward);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, target_port, watched.clone()));
            }
        });
        Self { endpoint, mode, task }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send(mode).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, target_port: u16, mut mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target_port)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let questions = async { drop(tokio::io::copy(&mut from_client, &mut to_server).await) };
    let answering_mode = mode.clone();
    let answers = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            let lost = *answering_mode.borrow() == Mode::LoseAnswers;
            if !lost && to_client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    let refused = async { drop(mode.wait_for(|mode| *mode == Mode::Refuse).await.map(|_| ())) };
    // Whichever ends first ends the connection.
    tokio::select! {
        () = questions => {}
        () = answers => {}
        () = refused => {}
    }
}
