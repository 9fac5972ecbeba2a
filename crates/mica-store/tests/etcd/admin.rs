//! What an administrator does to an etcd with `etcdctl`, in the few messages that tests need.

use bytes::Bytes;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::server::within;

/// Sends a request and waits until it is done. The answer's content is ignored.
pub async fn call<Q: prost::Message + 'static>(endpoint: &str, path: &'static str, question: Q) {
    let send = async {
        let channel = Endpoint::from_shared(endpoint.to_owned())
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        grpc.unary(tonic::Request::new(question), path, ProstCodec::<Q, ()>::default())
            .await
            .unwrap();
    };
    within(path, send).await;
}

pub async fn put(endpoint: &str, key: &str, value: Bytes) {
    call(
        endpoint,
        "/etcdserverpb.KV/Put",
        Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value,
        },
    )
    .await;
}

/// Gives the space of deleted data back and takes the alarm off.
pub async fn reclaim_space(endpoint: &str) {
    call(endpoint, "/etcdserverpb.Maintenance/Defragment", ()).await;
    call(
        endpoint,
        "/etcdserverpb.Maintenance/Alarm",
        Alarm {
            action: DEACTIVATE,
            member: 0,
            alarm: NO_SPACE,
        },
    )
    .await;
}

/// Turns authentication on, with a user who may use one prefix only.
pub async fn protect(endpoint: &str, user: &str, password: &str, prefix: &str) {
    let owned = |text: &str| text.to_owned();
    call(endpoint, "/etcdserverpb.Auth/RoleAdd", Name { name: owned("root") }).await;
    call(endpoint, "/etcdserverpb.Auth/RoleAdd", Name { name: owned("mica") }).await;
    let (key, mut end) = (format!("{prefix}/"), prefix.as_bytes().to_vec());
    end.push(b'0');
    let permission = Permission {
        kind: READ_WRITE,
        key: key.into(),
        range_end: end.into(),
    };
    let grant = GrantPermission {
        name: owned("mica"),
        permission: Some(permission),
    };
    call(endpoint, "/etcdserverpb.Auth/RoleGrantPermission", grant).await;
    for (user, password, role) in [("root", "root", "root"), (user, password, "mica")] {
        call(
            endpoint,
            "/etcdserverpb.Auth/UserAdd",
            Pair {
                one: owned(user),
                two: owned(password),
            },
        )
        .await;
        call(
            endpoint,
            "/etcdserverpb.Auth/UserGrantRole",
            Pair {
                one: owned(user),
                two: owned(role),
            },
        )
        .await;
    }
    call(endpoint, "/etcdserverpb.Auth/AuthEnable", ()).await;
}

const DEACTIVATE: i32 = 2;
const NO_SPACE: i32 = 1;
const READ_WRITE: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Alarm {
    #[prost(int32, tag = "1")]
    action: i32,
    #[prost(uint64, tag = "2")]
    member: u64,
    #[prost(int32, tag = "3")]
    alarm: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pair {
    #[prost(string, tag = "1")]
    one: String,
    #[prost(string, tag = "2")]
    two: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GrantPermission {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Permission {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    range_end: Bytes,
}
