//! A parsed document: a tree whose aliases point back into it.

/// A document as a tree in one vector; aliases point back into it.
#[derive(Debug, Default)]
pub(super) struct Document {
    nodes: Vec<Node>,
    /// None if the stream is empty.
    pub(super) root: Option<NodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeId(usize);

#[derive(Debug)]
pub(super) struct Node {
    /// Counted from zero.
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar {
        value: String,
        /// Empty if none was given.
        tag: String,
        /// Plain, so that its type is to be guessed.
        implicit: bool,
    },
    Sequence(Vec<NodeId>),
    /// Keys and values in turn.
    Mapping(Vec<NodeId>),
    Alias {
        name: String,
        target: NodeId,
    },
}

impl Document {
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    pub(super) fn set(&mut self, id: NodeId, content: Content) {
        self.nodes[id.0].content = content;
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }
}
