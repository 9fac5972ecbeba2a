//! What a request asks for: which plane, which resource, which verb. Parsed once, at the edge.
//!
//! The path is split first and each segment decoded once, so that `*` and `%2A` are the same and a decoded slash can never
//! move a boundary.

use compact_str::CompactString;
use http::Method;
use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// Which control plane a path prefix (or host) names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    Root,
    /// A plane by its own name.
    Plane(String),
    /// Every plane but root.
    AllPlanes,
    /// The plane of a project.
    Project(String),
    /// An organization's view of root.
    Organization(String),
    /// A user's view of root.
    User(String),
}

/// A path taken apart: the plane it names and what is asked of that plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    pub address: Address,
    /// The decoded segments below the plane's prefix, without empty ones at the ends.
    pub segments: Vec<CompactString>,
    /// The prefix as the client wrote it, for locators that must stay inside it; empty for root.
    pub prefix: String,
}

const PROJECT_PREFIX: &[&str] = &["apis", "resourcemanager.miloapis.com", "v1alpha1", "projects"];
const ORGANIZATION_PREFIX: &[&str] = &["apis", "resourcemanager.miloapis.com", "v1alpha1", "organizations"];
const USER_PREFIX: &[&str] = &["apis", "iam.miloapis.com", "v1alpha1", "users"];

/// Room for the longest usual path of root: of a namespaced object's subresource.
const USUAL_SEGMENTS: usize = 8;

/// Makes an address from the name in the path.
type MakeAddress = fn(String) -> Address;

/// Takes a request path apart.
pub fn locate(path: &str) -> Result<Located, ApiError> {
    let mut segments = Vec::with_capacity(USUAL_SEGMENTS);
    let encoded = memchr::memchr(b'%', path.as_bytes()).is_some();
    if path.len() > 1 {
        for raw in split(path) {
            segments.push(if encoded { decode(raw)? } else { raw.into() });
        }
    }
    let Some((at, make)) = door(&segments) else {
        return Ok(Located {
            address: Address::Root,
            segments,
            prefix: String::new(),
        });
    };
    let name = &segments[at];
    if name.contains('/') || name == "." || name == ".." || name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "{:?} cannot be the name of a control plane",
            name.as_str()
        )));
    }
    let raw: Vec<&str> = split(path).take(at + 2).collect();
    Ok(Located {
        address: make(name.to_string()),
        prefix: format!("/{}", raw.join("/")),
        segments: segments.split_off(at + 2),
    })
}

/// Where in a path the name of a plane stands, and what kind of address it is; `None` if the path is root's own.
fn door(segments: &[CompactString]) -> Option<(usize, MakeAddress)> {
    let doors: [(&[&str], MakeAddress); 5] = [
        (&["clusters"], |name| {
            if name == "*" {
                Address::AllPlanes
            } else {
                Address::Plane(name)
            }
        }),
        (&["projects"], Address::Project),
        (PROJECT_PREFIX, Address::Project),
        (ORGANIZATION_PREFIX, Address::Organization),
        (USER_PREFIX, Address::User),
    ];
    doors.into_iter().find_map(|(door, make)| {
        let at = door.len();
        let here = segments.get(at + 1).is_some_and(|segment| segment == "control-plane");
        (here && segments[..at].iter().eq(door.iter())).then_some((at, make))
    })
}

/// What is between the slashes of a path, slashes at its ends aside.
fn split(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_matches('/');
    let ends = memchr::memchr_iter(b'/', path.as_bytes()).chain(std::iter::once(path.len()));
    ends.scan(0, |start, end| Some(&path[std::mem::replace(start, end + 1)..end]))
}

fn decode(segment: &str) -> Result<CompactString, ApiError> {
    percent_decode_str(segment)
        .decode_utf8()
        .map(CompactString::from)
        .map_err(|_| ApiError::bad_request("the path is not valid UTF-8"))
}

/// What the segments below a plane's prefix ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Path {
    /// `/`
    Index,
    /// `/api`
    LegacyVersions,
    /// `/apis`
    Groups,
    /// `/apis/{group}`
    Group(String),
    /// `/api/{version}` or `/apis/{group}/{version}`
    Version { group: String, version: String },
    /// Something inside a group and version.
    Resource(ResourcePath),
    /// Anything else: health, version, metrics, OpenAPI.
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourcePath {
    pub group: CompactString,
    pub version: CompactString,
    pub resource: CompactString,
    /// The namespace in the path, if it has one.
    pub namespace: Option<CompactString>,
    pub name: Option<CompactString>,
    pub subresource: Option<CompactString>,
    /// The path had the old `watch/` prefix.
    pub legacy_watch: bool,
}

impl ResourcePath {
    /// The one object that a request is about: named in the path, or by a list's or watch's field selector.
    pub fn about(&self, query: &Query) -> Option<String> {
        let selected = || {
            let selector = mica_machinery::select::FieldSelector::parse(query.text("fieldSelector")).ok()?;
            selector
                .exact("metadata.name")
                .filter(|name| !name.is_empty())
                .map(ToOwned::to_owned)
        };
        self.name.as_ref().map(ToString::to_string).or_else(selected)
    }
}

/// Reads the segments. Names are checked to be usable as path segments.
pub fn parse(segments: &[CompactString]) -> Result<Path, ApiError> {
    let (mut few, many);
    let texts: &[&str] = if segments.len() <= USUAL_SEGMENTS {
        few = [""; USUAL_SEGMENTS];
        for (text, segment) in few.iter_mut().zip(segments) {
            *text = segment.as_str();
        }
        &few[..segments.len()]
    } else {
        many = segments.iter().map(CompactString::as_str).collect::<Vec<_>>();
        &many
    };
    let (group, version, rest): (&str, &str, &[&str]) = match texts {
        [] => return Ok(Path::Index),
        ["api"] => return Ok(Path::LegacyVersions),
        ["apis"] => return Ok(Path::Groups),
        ["apis", group] => return Ok(Path::Group((*group).to_owned())),
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (group, version, rest),
        _ => return Ok(Path::Other),
    };
    if rest.is_empty() {
        return Ok(Path::Version {
            group: group.to_owned(),
            version: version.to_owned(),
        });
    }
    let mut path = ResourcePath {
        group: group.into(),
        version: version.into(),
        ..ResourcePath::default()
    };
    let rest = match rest {
        ["watch", below @ ..] if !below.is_empty() => {
            path.legacy_watch = true;
            below
        }
        other => other,
    };
    let owned = |text: &str| Some(CompactString::from(text));
    let below: &[&str] = match rest {
        ["namespaces", name, subresource @ ("status" | "finalize")] if group.is_empty() => {
            (path.resource, path.name, path.subresource) = ("namespaces".into(), owned(name), owned(subresource));
            &[]
        }
        ["namespaces", namespace, below @ ..] if !below.is_empty() => {
            path.namespace = owned(namespace);
            below
        }
        other => other,
    };
    match below {
        [] => {}
        [resource] => path.resource = (*resource).into(),
        [resource, name] => (path.resource, path.name) = ((*resource).into(), owned(name)),
        [resource, name, subresource @ ..] => {
            (path.resource, path.name) = ((*resource).into(), owned(name));
            path.subresource = Some(subresource.join("/").into());
        }
    }
    if let Some(name) = &path.name {
        check_segment("Name", name)?;
    }
    if let Some(namespace) = &path.namespace {
        check_segment("Namespace", namespace)?;
    }
    Ok(Path::Resource(path))
}

/// Upstream's rule for names in paths, with its words.
fn check_segment(what: &str, segment: &str) -> Result<(), ApiError> {
    let problem = match segment {
        "." => "may not be '.'".to_owned(),
        ".." => "may not be '..'".to_owned(),
        _ if memchr::memchr2(b'/', b'%', segment.as_bytes()).is_none() => return Ok(()),
        _ => match segment.contains('/') {
            true => "may not contain '/'".to_owned(),
            false => "may not contain '%'".to_owned(),
        },
    };
    Err(ApiError::bad_request(format!(
        "{what} parameter invalid: {}: {problem}",
        mica_machinery::field::quote(segment)
    )))
}

/// What is done to a resource, as authorization, audit and metrics name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// What a method means that no resource has: authorization decides about it all the same, by no name.
    Unknown,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Unknown => "",
        }
    }

    /// The verb of a method on a path.
    pub fn of(method: &Method, path: &ResourcePath, query: &Query) -> Self {
        let named = path.name.is_some();
        match *method {
            Method::GET | Method::HEAD if path.legacy_watch => Self::Watch,
            Method::GET | Method::HEAD if named => Self::Get,
            Method::GET | Method::HEAD if query.flag("watch") => Self::Watch,
            Method::GET | Method::HEAD => Self::List,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE if named => Self::Delete,
            Method::DELETE => Self::DeleteCollection,
            _ => Self::Unknown,
        }
    }
}

/// The decoded query parameters, in order.
#[derive(Clone, Default, Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: Option<&str>) -> Self {
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        Self(
            text.unwrap_or_default()
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first value, empty if absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A boolean as upstream reads it: there and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// An integer, with Go's words for one that is none.
    pub fn int(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(value) => Ok(Some(value)),
                Err(error) => {
                    let range = matches!(
                        error.kind(),
                        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow
                    );
                    Err(ApiError::bad_request(format!(
                        "strconv.ParseInt: parsing {}: {}",
                        mica_machinery::field::quote(text),
                        if range { "value out of range" } else { "invalid syntax" }
                    )))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str) -> (Address, Vec<String>) {
        let located = locate(path).unwrap();
        let segments = located.segments.iter().map(ToString::to_string).collect();
        (located.address, segments)
    }

    #[test]
    fn every_address_form_routes() {
        let api = |segments: &[&str]| segments.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(check("/"), (Address::Root, api(&[])));
        assert_eq!(check("/api/v1/"), (Address::Root, api(&["api", "v1"])));
        let plane = |name: &str| Address::Plane(name.to_owned());
        assert_eq!(check("/clusters/p1/control-plane"), (plane("p1"), api(&[])));
        assert_eq!(
            check("/clusters/p1/control-plane/api/v1"),
            (plane("p1"), api(&["api", "v1"]))
        );
        assert_eq!(check("/clusters/*/control-plane/api").0, Address::AllPlanes);
        assert_eq!(check("/clusters/%2A/control-plane/api").0, Address::AllPlanes);
        let project = Address::Project("x".to_owned());
        assert_eq!(check("/projects/x/control-plane/apis").0, project);
        assert_eq!(
            check("/apis/resourcemanager.miloapis.com/v1alpha1/projects/x/control-plane/apis").0,
            project
        );
        let organization = Address::Organization("o".to_owned());
        assert_eq!(
            check("/apis/resourcemanager.miloapis.com/v1alpha1/organizations/o/control-plane/api").0,
            organization
        );
        assert_eq!(
            check("/apis/iam.miloapis.com/v1alpha1/users/u/control-plane/api").0,
            Address::User("u".to_owned())
        );
        for bad in [
            "/clusters/a%2Fb/control-plane/api",
            "/clusters/%2e%2e/control-plane/api",
            "/clusters/./control-plane",
        ] {
            assert_eq!(locate(bad).unwrap_err().code(), 400, "{bad}");
        }
        assert_eq!(
            locate("/clusters/p1/control-plane/api").unwrap().prefix,
            "/clusters/p1/control-plane"
        );
    }

    fn resource(path: &str) -> ResourcePath {
        match parse(&locate(path).unwrap().segments).unwrap() {
            Path::Resource(path) => path,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn resource_paths_come_apart() {
        let show = |path: &str| {
            let p = resource(path);
            format!(
                "{:?} {:?} {:?} {:?} {}",
                p.namespace, p.resource, p.name, p.subresource, p.legacy_watch
            )
        };
        assert_eq!(show("/api/v1/namespaces"), r#"None "namespaces" None None false"#);
        assert_eq!(
            show("/api/v1/namespaces/a"),
            r#"None "namespaces" Some("a") None false"#
        );
        assert_eq!(
            show("/api/v1/namespaces/a/finalize"),
            r#"None "namespaces" Some("a") Some("finalize") false"#
        );
        assert_eq!(
            show("/api/v1/namespaces/a/configmaps"),
            r#"Some("a") "configmaps" None None false"#
        );
        assert_eq!(
            show("/api/v1/namespaces/a/sa/b/token"),
            r#"Some("a") "sa" Some("b") Some("token") false"#
        );
        assert_eq!(
            show("/apis/g/v1/widgets/x/status"),
            r#"None "widgets" Some("x") Some("status") false"#
        );
        assert_eq!(
            show("/api/v1/watch/namespaces/a/configmaps"),
            r#"Some("a") "configmaps" None None true"#
        );
        assert_eq!(
            show("/api/v1/watch/namespaces/a"),
            r#"None "namespaces" Some("a") None true"#
        );
        let bad = parse(&locate("/api/v1/namespaces/a/configmaps/%2e%2e").unwrap().segments).unwrap_err();
        assert_eq!(bad.message(), "Name parameter invalid: \"..\": may not be '..'");
    }

    #[test]
    fn flags_and_integers_read_as_upstream_reads_them() {
        let query = Query::parse(Some("watch=&limit=abc&x=false&y=0&z=no&n=12&s=a+b%20c"));
        assert!(query.flag("watch") && query.flag("z"));
        assert!(!query.flag("x") && !query.flag("y") && !query.flag("absent"));
        assert_eq!(query.int("n").unwrap(), Some(12));
        assert_eq!(
            query.int("limit").unwrap_err().message(),
            "strconv.ParseInt: parsing \"abc\": invalid syntax"
        );
        assert_eq!(query.text("s"), "a b c");
    }
}
