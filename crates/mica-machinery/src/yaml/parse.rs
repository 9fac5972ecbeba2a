//! Tokens into nodes: the grammar of the first document.

use std::collections::HashMap;

use super::YamlError;
use super::node::{Content, Document, Node, NodeId};
use super::scan::Scanner;
use super::token::{Mark, Token, TokenKind};
use crate::codec::MAX_DEPTH;

pub(super) fn parse(characters: Vec<char>) -> Result<Document, YamlError> {
    let mut parser = Parser {
        scanner: Scanner::new(characters),
        document: Document::default(),
        anchors: HashMap::new(),
        tags: Vec::new(),
        depth: 0,
    };
    parser.document()?;
    Ok(parser.document)
}

struct Parser {
    scanner: Scanner,
    document: Document,
    anchors: HashMap<String, NodeId>,
    /// Handles and the prefixes they stand for.
    tags: Vec<(String, String)>,
    depth: usize,
}

/// Which collections may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Flow,
    Block,
    /// A block in which `-` needs no further indentation: the value of a key.
    BlockOrIndentless,
}

/// What may stand before a node's content.
struct Properties {
    anchor: Option<String>,
    tag: String,
    start: Mark,
}

fn is_directive(kind: &TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::VersionDirective { .. } | TokenKind::TagDirective { .. }
    )
}

/// An error at a token, found in what began at `context`.
fn error(context: Mark, problem: &str, mark: Mark) -> YamlError {
    // Unlike the scanner's, these lines are counted from zero.
    YamlError::at(if mark.line != 0 { mark.line } else { context.line }, problem)
}

impl Parser {
    fn kind(&mut self) -> Result<&TokenKind, YamlError> {
        Ok(&self.scanner.peek()?.kind)
    }

    fn take(&mut self) -> Result<Token, YamlError> {
        self.scanner.peek()?;
        Ok(self.scanner.take().expect("just peeked at it"))
    }

    fn document(&mut self) -> Result<(), YamlError> {
        // The start of the stream.
        self.take()?;
        let first = self.kind()?;
        if *first == TokenKind::StreamEnd {
            return Ok(());
        }
        let root = if !is_directive(first) && *first != TokenKind::DocumentStart {
            self.directives()?;
            self.node(Context::Block)?
        } else {
            self.directives()?;
            let token = self.scanner.peek()?;
            if token.kind != TokenKind::DocumentStart {
                return Err(error(
                    Mark::default(),
                    "did not find expected <document start>",
                    token.start,
                ));
            }
            self.take()?;
            let token = self.scanner.peek()?;
            let start = token.start;
            match &token.kind {
                TokenKind::DocumentStart | TokenKind::DocumentEnd | TokenKind::StreamEnd => self.empty(start),
                kind if is_directive(kind) => self.empty(start),
                _ => self.node(Context::Block)?,
            }
        };
        self.document.root = Some(root);
        // What follows is another document's, but it must be a token.
        self.kind()?;
        Ok(())
    }

    fn directives(&mut self) -> Result<(), YamlError> {
        let mut has_version = false;
        while is_directive(self.kind()?) {
            let token = self.take()?;
            let problem = match token.kind {
                TokenKind::VersionDirective { .. } if has_version => "found duplicate %YAML directive",
                TokenKind::VersionDirective { major: 1, minor: 1 } => {
                    has_version = true;
                    continue;
                }
                TokenKind::TagDirective { handle, prefix } => {
                    if !self.tags.iter().any(|(known, _)| *known == handle) {
                        self.tags.push((handle, prefix));
                        continue;
                    }
                    "found duplicate %TAG directive"
                }
                _ => "found incompatible YAML document",
            };
            return Err(error(Mark::default(), problem, token.start));
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            if !self.tags.iter().any(|(known, _)| known == handle) {
                self.tags.push((handle.to_owned(), prefix.to_owned()));
            }
        }
        Ok(())
    }

    fn add(&mut self, line: usize, content: Content) -> NodeId {
        self.document.add(Node { line, content })
    }

    /// The null that stands where nothing was written.
    fn empty(&mut self, mark: Mark) -> NodeId {
        let content = Content::Scalar {
            value: String::new(),
            tag: String::new(),
            implicit: true,
        };
        self.add(mark.line, content)
    }

    fn node(&mut self, context: Context) -> Result<NodeId, YamlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.scanner.too_deep());
        }
        let node = self.node_within_depth(context)?;
        self.depth -= 1;
        Ok(node)
    }

    fn node_within_depth(&mut self, context: Context) -> Result<NodeId, YamlError> {
        if let TokenKind::Alias(_) = self.kind()? {
            let token = self.take()?;
            let TokenKind::Alias(name) = token.kind else {
                unreachable!("just looked at it")
            };
            let Some(target) = self.anchors.get(&name).copied() else {
                return Err(YamlError::at(0, &format!("unknown anchor '{name}' referenced")));
            };
            return Ok(self.add(token.start.line, Content::Alias { name, target }));
        }
        let properties = self.properties()?;
        let token = self.scanner.peek()?;
        let token_start = token.start;
        let block = context != Context::Flow;
        match token.kind {
            TokenKind::BlockEntry if context == Context::BlockOrIndentless => {
                self.collection(properties, Content::Sequence, Self::indentless_sequence)
            }
            TokenKind::Scalar { .. } => self.scalar(properties),
            TokenKind::FlowSequenceStart => self.collection(properties, Content::Sequence, Self::flow_sequence),
            TokenKind::FlowMappingStart => self.collection(properties, Content::Mapping, Self::flow_mapping),
            TokenKind::BlockSequenceStart if block => {
                self.collection(properties, Content::Sequence, Self::block_sequence)
            }
            TokenKind::BlockMappingStart if block => self.collection(properties, Content::Mapping, Self::block_mapping),
            _ if properties.anchor.is_some() || !properties.tag.is_empty() => {
                let implicit = properties.tag.is_empty();
                let content = Content::Scalar {
                    value: String::new(),
                    tag: properties.tag,
                    implicit,
                };
                let node = self.add(properties.start.line, content);
                self.name(properties.anchor, node);
                Ok(node)
            }
            _ => Err(error(
                properties.start,
                "did not find expected node content",
                token_start,
            )),
        }
    }

    fn name(&mut self, anchor: Option<String>, node: NodeId) {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, node);
        }
    }

    /// Anchor and tag, in either order.
    fn properties(&mut self) -> Result<Properties, YamlError> {
        let start = self.scanner.peek()?.start;
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.kind()? {
                TokenKind::Anchor(_) if anchor.is_none() => {
                    if let TokenKind::Anchor(name) = self.take()?.kind {
                        anchor = Some(name);
                    }
                }
                TokenKind::Tag { .. } if tag.is_none() => {
                    let token = self.take()?;
                    if let TokenKind::Tag { handle, suffix } = token.kind {
                        tag = Some((handle, suffix, token.start));
                    }
                }
                _ => break,
            }
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, mark)) => match self.tags.iter().find(|(known, _)| *known == handle) {
                Some((_, prefix)) => format!("{prefix}{suffix}"),
                None => return Err(error(start, "found undefined tag handle", mark)),
            },
        };
        Ok(Properties { anchor, tag, start })
    }

    fn scalar(&mut self, properties: Properties) -> Result<NodeId, YamlError> {
        let TokenKind::Scalar { value, plain } = self.take()?.kind else {
            unreachable!("just looked at it")
        };
        let implicit = (properties.tag.is_empty() && plain) || properties.tag == "!";
        let content = Content::Scalar {
            value,
            tag: properties.tag,
            implicit,
        };
        let node = self.add(properties.start.line, content);
        self.name(properties.anchor, node);
        Ok(node)
    }

    /// A collection is known by its anchor before its content is read: it may contain itself.
    fn collection(
        &mut self,
        properties: Properties,
        make: fn(Vec<NodeId>) -> Content,
        read: fn(&mut Self) -> Result<Vec<NodeId>, YamlError>,
    ) -> Result<NodeId, YamlError> {
        let node = self.add(properties.start.line, make(Vec::new()));
        self.name(properties.anchor, node);
        let children = read(self)?;
        self.document.set(node, make(children));
        Ok(node)
    }

    fn block_sequence(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let context = self.take()?.start;
        let mut children = Vec::new();
        loop {
            let token = self.scanner.peek()?;
            let (start, end) = (token.start, token.end);
            match token.kind {
                TokenKind::BlockEntry => {
                    self.take()?;
                    let child = match self.kind()? {
                        TokenKind::BlockEntry | TokenKind::BlockEnd => self.empty(end),
                        _ => self.node(Context::Block)?,
                    };
                    children.push(child);
                }
                TokenKind::BlockEnd => {
                    self.take()?;
                    return Ok(children);
                }
                _ => return Err(error(context, "did not find expected '-' indicator", start)),
            }
        }
    }

    fn indentless_sequence(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let mut children = Vec::new();
        while *self.kind()? == TokenKind::BlockEntry {
            let end = self.take()?.end;
            let child = match self.kind()? {
                TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => self.empty(end),
                _ => self.node(Context::Block)?,
            };
            children.push(child);
        }
        Ok(children)
    }

    fn block_mapping(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let context = self.take()?.start;
        let mut children = Vec::new();
        loop {
            let token = self.scanner.peek()?;
            let start = token.start;
            match token.kind {
                TokenKind::Key => {
                    children.push(self.block_mapping_part()?);
                    let token = self.scanner.peek()?;
                    let start = token.start;
                    let value = match token.kind {
                        TokenKind::Value => self.block_mapping_part()?,
                        _ => self.empty(start),
                    };
                    children.push(value);
                }
                TokenKind::BlockEnd => {
                    self.take()?;
                    return Ok(children);
                }
                _ => return Err(error(context, "did not find expected key", start)),
            }
        }
    }

    /// What follows a `Key` or `Value` token.
    fn block_mapping_part(&mut self) -> Result<NodeId, YamlError> {
        let end = self.take()?.end;
        match self.kind()? {
            TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => Ok(self.empty(end)),
            _ => self.node(Context::BlockOrIndentless),
        }
    }

    /// Before an entry of a flow collection: takes the comma that must precede all but the first.
    fn flow_separator(&mut self, is_first: bool, context: Mark, problem: &str) -> Result<(), YamlError> {
        if is_first {
            return Ok(());
        }
        let token = self.scanner.peek()?;
        if token.kind != TokenKind::FlowEntry {
            return Err(error(context, problem, token.start));
        }
        self.take()?;
        Ok(())
    }

    fn flow_sequence(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let context = self.take()?.start;
        let mut children = Vec::new();
        let mut is_first = true;
        while *self.kind()? != TokenKind::FlowSequenceEnd {
            self.flow_separator(is_first, context, "did not find expected ',' or ']'")?;
            is_first = false;
            let token = self.scanner.peek()?;
            let start = token.start;
            match token.kind {
                TokenKind::FlowSequenceEnd => break,
                TokenKind::Key => {
                    self.take()?;
                    let pair = self.flow_pair()?;
                    children.push(self.add(start.line, Content::Mapping(pair)));
                }
                _ => children.push(self.node(Context::Flow)?),
            }
        }
        self.take()?;
        Ok(children)
    }

    /// A mapping of one pair inside a flow sequence, `[a: b]`.
    fn flow_pair(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let token = self.scanner.peek()?;
        let end = token.end;
        let key = match token.kind {
            TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd => {
                // Upstream takes this token, although it is not the key's.
                self.take()?;
                self.empty(end)
            }
            _ => self.node(Context::Flow)?,
        };
        let token = self.scanner.peek()?;
        let start = token.start;
        if token.kind == TokenKind::Value {
            self.take()?;
            if !matches!(self.kind()?, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd) {
                return Ok(vec![key, self.node(Context::Flow)?]);
            }
        }
        Ok(vec![key, self.empty(start)])
    }

    fn flow_mapping(&mut self) -> Result<Vec<NodeId>, YamlError> {
        let context = self.take()?.start;
        let mut children = Vec::new();
        let mut is_first = true;
        while *self.kind()? != TokenKind::FlowMappingEnd {
            self.flow_separator(is_first, context, "did not find expected ',' or '}'")?;
            is_first = false;
            match self.kind()? {
                TokenKind::FlowMappingEnd => break,
                TokenKind::Key => {
                    self.take()?;
                    let token = self.scanner.peek()?;
                    let start = token.start;
                    let key = match token.kind {
                        TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd => self.empty(start),
                        _ => self.node(Context::Flow)?,
                    };
                    children.push(key);
                    children.push(self.flow_mapping_value()?);
                }
                _ => {
                    children.push(self.node(Context::Flow)?);
                    let start = self.scanner.peek()?.start;
                    children.push(self.empty(start));
                }
            }
        }
        self.take()?;
        Ok(children)
    }

    fn flow_mapping_value(&mut self) -> Result<NodeId, YamlError> {
        let token = self.scanner.peek()?;
        let mut start = token.start;
        if token.kind == TokenKind::Value {
            self.take()?;
            let token = self.scanner.peek()?;
            if !matches!(token.kind, TokenKind::FlowEntry | TokenKind::FlowMappingEnd) {
                return self.node(Context::Flow);
            }
            start = token.start;
        }
        Ok(self.empty(start))
    }
}
