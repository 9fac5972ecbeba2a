//! `Accept`: parsing it as upstream's library does, quirks included, and choosing.

use super::{Asked, Conversion, Encodings, Format, MetaVersion, Output, Pretty, Refusal, Route, Target, media_types};
use crate::request::Query;

const STREAM_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The answer's encoding and shape for a request to an object or a collection.
pub fn output(asked: Asked<'_>, route: Route, encodings: Encodings) -> Result<Output, Refusal> {
    routed(asked.accept, route)?;
    let allows = |format: Format, params: &Params<'_>| allowed_conversion(format, params, encodings);
    let (format, conversion, params) =
        choose(asked.accept, allows).ok_or_else(|| Refusal::NotAcceptable(media_types()))?;
    let pretty = if params.pretty || is_pretty(asked.query, asked.user_agent) {
        Pretty::Indented
    } else {
        Pretty::Compact
    };
    Ok(Output {
        format,
        conversion,
        pretty,
    })
}

/// As [`output`], for a watch: additionally the encoding must be one that can be streamed.
pub fn stream(asked: Asked<'_>, route: Route, encodings: Encodings) -> Result<Output, Refusal> {
    let output = output(asked, route, encodings)?;
    match output.format.watch_type() {
        Some(_) => Ok(Output {
            pretty: Pretty::Compact,
            ..output
        }),
        None => Err(Refusal::NotAcceptable(STREAM_TYPES.to_owned())),
    }
}

/// How an error is encoded: never converted, and indented JSON when nothing the client accepts fits.
pub fn error_output(asked: Asked<'_>) -> Output {
    plain(asked).unwrap_or(Output {
        pretty: Pretty::Indented,
        ..Output::JSON
    })
}

/// What the client accepts for something that has no other shape than its own.
fn plain(asked: Asked<'_>) -> Option<Output> {
    let unconverted = |_: Format, params: &Params<'_>| (!params.converts()).then_some(None);
    let (format, _, params) = choose(asked.accept, unconverted)?;
    let indented = params.pretty || is_pretty(asked.query, asked.user_agent);
    let pretty = if indented { Pretty::Indented } else { Pretty::Compact };
    Some(Output {
        format,
        conversion: None,
        pretty,
    })
}

/// How `/api` and `/apis` are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discovery {
    /// `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`.
    Aggregated(Format),
    Plain(Output),
}

/// The encoding of a document that has no other shape than its own.
pub fn document(asked: Asked<'_>, route: Route) -> Result<Output, Refusal> {
    routed(asked.accept, route)?;
    plain(asked).ok_or_else(|| Refusal::NotAcceptable(media_types()))
}

/// The answer's shape for `/api`, which is routed, and `/apis`, which is not.
pub fn discovery(asked: Asked<'_>, route: Route) -> Result<Discovery, Refusal> {
    routed(asked.accept, route)?;
    let aggregated = |_: Format, params: &Params<'_>| {
        let wanted =
            params.kind == "APIGroupDiscoveryList" && params.group == "apidiscovery.k8s.io" && params.version == "v2";
        wanted.then_some(None)
    };
    if !asked.accept.is_empty()
        && let Some((format, ..)) = choose(asked.accept, aggregated)
    {
        return Ok(Discovery::Aggregated(format));
    }
    document(asked, route).map(Discovery::Plain)
}

/// Upstream's rule: `?pretty` decides if it has a value; otherwise tools that people look at get indentation.
pub fn is_pretty(query: &str, user_agent: &str) -> bool {
    if query.contains("pretty")
        && let Some(value) = Query::parse(Some(query))
            .get("pretty")
            .filter(|value| !value.is_empty())
    {
        return matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|tool| user_agent.starts_with(tool))
}

/// The router's check: some clause, without its parameters, must be `*/*` or exactly one of the route's types. That is why
/// `application/*` is refused although the handler would understand it.
pub fn routed(accept: &str, route: Route) -> Result<(), Refusal> {
    let types: &[Format] = match route {
        Route::None => return Ok(()),
        Route::JsonOnly => &[Format::Json],
        Route::Object | Route::Collection => &Format::ALL,
    };
    let matches = |clause: &str| {
        let bare = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        bare == "*/*" || types.iter().any(|format| format.media_type() == bare)
    };
    // Every route has JSON, and most clients ask for nothing else.
    if accept.is_empty() || accept == Format::Json.media_type() || accept.split(',').any(matches) {
        Ok(())
    } else {
        Err(Refusal::NotRouted(match route {
            Route::JsonOnly => Format::Json.media_type().to_owned(),
            Route::Object | Route::None => media_types(),
            Route::Collection => format!("{}, {STREAM_TYPES}", media_types()),
        }))
    }
}

/// Whether a format can be answered in the shape that the parameters ask for; the shape if so.
fn allowed_conversion(format: Format, params: &Params<'_>, encodings: Encodings) -> Option<Option<Conversion>> {
    if !params.converts() {
        return (encodings == Encodings::All || format != Format::Protobuf).then_some(None);
    }
    let version = match (params.group, params.version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
        _ => return None,
    };
    let target = match params.kind {
        "Table" if format != Format::Protobuf => Target::Table,
        "PartialObjectMetadata" => Target::PartialObjectMetadata,
        "PartialObjectMetadataList" => Target::PartialObjectMetadataList,
        _ => return None,
    };
    Some(Some(Conversion { target, version }))
}

/// The parameters of one clause that mean something. A conversion is asked for as soon as one of its three parts is named.
#[derive(Clone, Default)]
struct Params<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
    names_conversion: bool,
    stream: &'a str,
    server_version: &'a str,
    pretty: bool,
}

impl Params<'_> {
    fn converts(&self) -> bool {
        self.names_conversion
    }
}

/// Takes the first clause, best first, that names one of our formats (in our order) and passes `allows`.
fn choose<'a>(
    accept: &'a str,
    allows: impl Fn(Format, &Params<'a>) -> Option<Option<Conversion>>,
) -> Option<(Format, Option<Conversion>, Params<'a>)> {
    if accept.is_empty() {
        return Some((Format::Json, None, Params::default()));
    }
    // What most clients send: nothing to sort.
    if accept == Format::Json.media_type()
        && let Some(conversion) = allows(Format::Json, &Params::default())
    {
        return Some((Format::Json, conversion, Params::default()));
    }
    for clause in parse(accept) {
        for format in Format::ALL {
            let (_, subtype) = format.media_type().split_once('/').expect("a media type has a slash");
            let named = match (clause.kind, clause.subtype) {
                ("*", "*") | ("application", "*") => true,
                ("application", named) => named == subtype,
                _ => false,
            };
            let streams =
                clause.params.stream.is_empty() || (clause.params.stream == "watch" && format.watch_type().is_some());
            if named
                && streams
                && (clause.params.server_version.is_empty() || clause.params.server_version == "v1")
                && let Some(conversion) = allows(format, &clause.params)
            {
                return Some((format, conversion, clause.params));
            }
        }
    }
    None
}

struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f64,
    params: Params<'a>,
}

/// The clauses, best first. Malformed ones are dropped.
fn parse(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(parse_clause).collect();
    // Upstream's order is no order (a star loses to anything, whatever its weight), so the result depends on the way of
    // sorting: insertion, as Go sorts short slices.
    for i in 1..clauses.len() {
        let mut j = i;
        while j > 0 && before(&clauses[j], &clauses[j - 1]) {
            clauses.swap(j, j - 1);
            j -= 1;
        }
        if i > MAX_CLAUSES {
            break;
        }
    }
    clauses
}

/// Clauses that are sorted: insertion takes quadratic time, and nobody sends more.
const MAX_CLAUSES: usize = 64;

fn before(a: &Clause<'_>, b: &Clause<'_>) -> bool {
    a.quality > b.quality || (a.kind != "*" && b.kind == "*") || (a.subtype != "*" && b.subtype == "*")
}

fn parse_clause(text: &str) -> Option<Clause<'_>> {
    let text = text.trim_matches(' ');
    let (media, params) = text.split_once(';').unwrap_or((text, ""));
    let (kind, subtype) = match media.split_once('/') {
        Some((kind, subtype)) if !subtype.is_empty() => (kind.trim_matches(' '), subtype.trim_matches(' ')),
        _ => match media.trim_end_matches('/').trim_matches(' ') {
            "*" => ("*", "*"),
            _ => return None,
        },
    };
    if subtype.contains('/') {
        return None;
    }
    let mut clause = Clause {
        kind,
        subtype,
        quality: 1.0,
        params: Params::default(),
    };
    for param in params.split(';') {
        let Some((name, value)) = param
            .split_once('=')
            .filter(|(_, value)| !value.is_empty() && !value.contains('='))
        else {
            continue;
        };
        let (name, trimmed) = (name.trim_matches(' '), value.trim_matches(' '));
        let known = &mut clause.params;
        match name {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            "as" => (known.kind, known.names_conversion) = (trimmed, true),
            "g" => (known.group, known.names_conversion) = (trimmed, true),
            "v" => (known.version, known.names_conversion) = (trimmed, true),
            "stream" => known.stream = trimmed,
            "sv" => known.server_version = trimmed,
            "pretty" => known.pretty = trimmed == "1",
            _ => {}
        }
    }
    Some(clause)
}
