//! What an administrator does to an etcd with `etcdctl`, in the few messages that tests need.

use bytes::Bytes;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::server::within;

/// Sends a request and waits until it is done.
async fn call<Q, A>(endpoint: &str, path: &'static str, question: Q) -> A
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let send = async {
        let channel = Endpoint::from_shared(endpoint.to_owned())
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(question);
        let path = PathAndQuery::from_static(path);
        grpc.unary(request, path, ProstCodec::<Q, A>::default())
            .await
            .unwrap()
            .into_inner()
    };
    within(path, send).await
}

/// Sends a request whose answer is of no interest.
async fn tell<Q: prost::Message + 'static>(endpoint: &str, path: &'static str, question: Q) {
    call::<Q, ()>(endpoint, path, question).await;
}

pub async fn put(endpoint: &str, key: &str, value: Bytes) {
    tell(
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
    const PATH: &str = "/etcdserverpb.Maintenance/Alarm";
    tell(endpoint, "/etcdserverpb.Maintenance/Defragment", ()).await;
    let raised: Alarms = call(endpoint, PATH, AlarmRequest::default()).await;
    assert!(!raised.alarms.is_empty(), "no alarm was raised");
    for alarm in raised.alarms {
        tell(
            endpoint,
            PATH,
            AlarmRequest {
                action: DEACTIVATE,
                member: alarm.member,
                alarm: alarm.alarm,
            },
        )
        .await;
    }
}

/// Turns authentication on, with a user who may use one prefix only.
pub async fn protect(endpoint: &str, user: &str, password: &str, prefix: &str) {
    let owned = |text: &str| text.to_owned();
    tell(endpoint, "/etcdserverpb.Auth/RoleAdd", Name { name: owned("root") }).await;
    tell(endpoint, "/etcdserverpb.Auth/RoleAdd", Name { name: owned("mica") }).await;
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
    tell(endpoint, "/etcdserverpb.Auth/RoleGrantPermission", grant).await;
    for (user, password, role) in [("root", "root", "root"), (user, password, "mica")] {
        tell(
            endpoint,
            "/etcdserverpb.Auth/UserAdd",
            Pair {
                one: owned(user),
                two: owned(password),
            },
        )
        .await;
        tell(
            endpoint,
            "/etcdserverpb.Auth/UserGrantRole",
            Pair {
                one: owned(user),
                two: owned(role),
            },
        )
        .await;
    }
    tell(endpoint, "/etcdserverpb.Auth/AuthEnable", ()).await;
}

const DEACTIVATE: i32 = 2;
const READ_WRITE: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AlarmRequest {
    #[prost(int32, tag = "1")]
    action: i32,
    #[prost(uint64, tag = "2")]
    member: u64,
    #[prost(int32, tag = "3")]
    alarm: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Alarms {
    #[prost(message, repeated, tag = "2")]
    alarms: Vec<Alarm>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Alarm {
    #[prost(uint64, tag = "1")]
    member: u64,
    #[prost(int32, tag = "2")]
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
