//! The wire format: varints, tags and lengths, read forward with upstream's errors and written backward.

/// A message that cannot be read or written; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("{0}")]
    Empty(&'static str),
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: integer overflow")]
    IntegerOverflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: {0}: wiretype end group for non-group")]
    StrayEndOfGroup(&'static str),
    #[error("proto: {0}: illegal tag {1} (wire type {2})")]
    IllegalTag(&'static str, i32, u64),
    #[error("proto: wrong wireType = {0} for field {1}")]
    WrongWireType(u8, &'static str),
    /// A text that a special type refuses: bad quantity, JSON or time.
    #[error("{0}")]
    Invalid(String),
    /// Nested deeper than values may be.
    #[error("exceeded max depth")]
    TooDeep,
    /// More objects than one document may hold.
    #[error("too many objects in one document")]
    TooMany,
    #[error(
        "object *{0} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    )]
    NoProtobuf(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

/// A field's number and the wire type as found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire_type: u8,
}

impl Tag {
    pub(super) fn is(self, wanted: WireType) -> bool {
        self.wire_type == wanted as u8
    }

    pub(super) fn expect(self, wanted: WireType, field: &'static str) -> Result<(), ProtobufError> {
        if self.is(wanted) {
            Ok(())
        } else {
            Err(ProtobufError::WrongWireType(self.wire_type, field))
        }
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Reader { rest: data }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's tag; `None` at the end of the message named `message`.
    pub(super) fn tag(&mut self, message: &'static str) -> Result<Option<Tag>, ProtobufError> {
        if self.is_empty() {
            return Ok(None);
        }
        let wire = self.varint()?;
        let wire_type = (wire & 7) as u8;
        if wire_type == 4 {
            return Err(ProtobufError::StrayEndOfGroup(message));
        }
        // Upstream cuts the number to 32 bits before it looks at it.
        let number = (wire >> 3) as i32;
        match u32::try_from(number) {
            Ok(number) if number > 0 => Ok(Some(Tag { number, wire_type })),
            _ => Err(ProtobufError::IllegalTag(message, number, wire)),
        }
    }

    /// The tag of a field in a map's entry, where upstream takes any number.
    pub(super) fn entry_tag(&mut self) -> Result<Option<Tag>, ProtobufError> {
        if self.is_empty() {
            return Ok(None);
        }
        let wire = self.varint()?;
        Ok(Some(Tag {
            number: (wire >> 3) as u32,
            wire_type: (wire & 7) as u8,
        }))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::UnexpectedEof)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::IntegerOverflow)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        if i64::try_from(length).is_err() {
            return Err(ProtobufError::NegativeLength);
        }
        self.take(usize::try_from(length).map_err(|_| ProtobufError::UnexpectedEof)?)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("took eight bytes")))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::UnexpectedEof)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Steps over the value of a field whose tag was read; groups are skipped whole.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), ProtobufError> {
        let mut depth = 0_usize;
        let mut wire_type = tag.wire_type;
        loop {
            match wire_type {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8)?;
                }
                2 => {
                    self.bytes()?;
                }
                3 => depth += 1,
                4 if depth == 0 => return Err(ProtobufError::EndOfGroup),
                4 => depth -= 1,
                5 => {
                    self.take(4)?;
                }
                other => return Err(ProtobufError::IllegalWireType(other)),
            }
            if depth == 0 {
                return Ok(());
            }
            wire_type = (self.varint()? & 7) as u8;
        }
    }
}

/// Text of a string field; Go does not check it, JSON shows what is not UTF-8 as U+FFFD.
pub(super) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let mut out = String::with_capacity(bytes.len());
            for chunk in bytes.utf8_chunks() {
                out.push_str(chunk.valid());
                out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
            }
            out
        }
    }
}

/// Writes a message from its end, so that each length is known when it is due and nothing is measured beforehand.
#[derive(Default)]
pub(super) struct Backward {
    /// The message, last byte first.
    reversed: Vec<u8>,
}

impl Backward {
    /// Bytes written so far: the difference of two is the length of what was written between.
    pub(super) fn position(&self) -> usize {
        self.reversed.len()
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.reversed.reverse();
        self.reversed
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut length = 0;
        loop {
            bytes[length] = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                break;
            }
            bytes[length] |= 0x80;
            length += 1;
        }
        self.raw(&bytes[..=length]);
    }

    pub(super) fn tag(&mut self, number: u32, wire_type: WireType) {
        self.varint(u64::from(number) << 3 | wire_type as u64);
    }

    /// Ends a length-delimited field whose content was written since `start`.
    pub(super) fn close(&mut self, number: u32, start: usize) {
        self.varint((self.position() - start) as u64);
        self.tag(number, WireType::Bytes);
    }

    pub(super) fn field_bytes(&mut self, number: u32, bytes: &[u8]) {
        let start = self.position();
        self.raw(bytes);
        self.close(number, start);
    }

    pub(super) fn field_varint(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.tag(number, WireType::Varint);
    }

    pub(super) fn field_fixed64(&mut self, number: u32, value: u64) {
        self.raw(&value.to_le_bytes());
        self.tag(number, WireType::Fixed64);
    }
}
