//! Frames of a WebSocket (RFC 6455), as a server reads and writes them. Pure.
//!
//! What a client sends is masked; what we send is not. Messages may come in pieces, with pings and pongs between.

use bytes::{Buf as _, BytesMut};

/// The most that a message may hold. Terminals and pipes send some 32 KiB at once.
pub(super) const MOST: usize = 1024 * 1024;
/// The most that a frame between messages may hold.
const MOST_CONTROL: usize = 125;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The last piece of its message.
    pub(super) is_last: bool,
    pub(super) opcode: Opcode,
    pub(super) payload: Vec<u8>,
}

/// Why a connection is closed, as the other side is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseCode {
    Normal,
    GoingAway,
    ProtocolError,
    TooLarge,
}

impl CloseCode {
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::GoingAway => 1001,
            Self::ProtocolError => 1002,
            Self::TooLarge => 1009,
        }
    }
}

/// Takes one frame off the front of what was read; `None` while it is not whole.
pub(super) fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, CloseCode> {
    let mut head: &[u8] = buffer;
    if head.remaining() < 2 {
        return Ok(None);
    }
    let (first, second) = (head.get_u8(), head.get_u8());
    let opcode = Opcode::from_bits(first & 0x0f).ok_or(CloseCode::ProtocolError)?;
    let is_last = first & 0x80 != 0;
    // Of no extension that we have agreed to, and masked.
    if first & 0x70 != 0 || second & 0x80 == 0 {
        return Err(CloseCode::ProtocolError);
    }
    let length = match second & 0x7f {
        126 if head.remaining() < 2 => return Ok(None),
        126 => u64::from(head.get_u16()),
        127 if head.remaining() < 8 => return Ok(None),
        127 => head.get_u64(),
        short => u64::from(short),
    };
    if opcode.is_control() && (!is_last || length > MOST_CONTROL as u64) {
        return Err(CloseCode::ProtocolError);
    }
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MOST)
        .ok_or(CloseCode::TooLarge)?;
    if head.remaining() < 4 + length {
        return Ok(None);
    }
    let mask = head.get_u32().to_be_bytes();
    let head_length = buffer.len() - head.len();
    buffer.advance(head_length);
    let mut payload = buffer.split_to(length).to_vec();
    apply(mask, &mut payload);
    Ok(Some(Frame {
        is_last,
        opcode,
        payload,
    }))
}

fn apply(mask: [u8; 4], payload: &mut [u8]) {
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// A frame as a server sends it.
pub(super) fn encode(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.payload.len() + 10);
    write_head(frame, 0, &mut bytes);
    bytes.extend_from_slice(&frame.payload);
    bytes
}

fn write_head(frame: &Frame, mask_bit: u8, bytes: &mut Vec<u8>) {
    bytes.push(if frame.is_last { 0x80 } else { 0 } | frame.opcode.bits());
    let length = frame.payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => bytes.push(mask_bit | short),
        (_, Ok(length)) => {
            bytes.push(mask_bit | 126);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            bytes.push(mask_bit | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// A whole message of a channel.
pub(super) fn binary(payload: Vec<u8>) -> Vec<u8> {
    encode(&Frame {
        is_last: true,
        opcode: Opcode::Binary,
        payload,
    })
}

pub(super) fn pong(payload: Vec<u8>) -> Vec<u8> {
    encode(&Frame {
        is_last: true,
        opcode: Opcode::Pong,
        payload,
    })
}

pub(super) fn close(code: CloseCode) -> Vec<u8> {
    encode(&Frame {
        is_last: true,
        opcode: Opcode::Close,
        payload: code.number().to_be_bytes().to_vec(),
    })
}

/// What a client's frames come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    /// The client ends the connection.
    Close,
}

/// Joins the pieces of messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The pieces so far of a message that goes on.
    begun: Option<Vec<u8>>,
}

impl Messages {
    /// `None`: nothing to act on yet.
    pub(super) fn push(&mut self, frame: Frame) -> Result<Option<Event>, CloseCode> {
        let whole = match (frame.opcode, self.begun.take()) {
            (Opcode::Close, _) if frame.payload.len() == 1 => return Err(CloseCode::ProtocolError),
            (Opcode::Close, _) => return Ok(Some(Event::Close)),
            (Opcode::Ping, begun) => {
                self.begun = begun;
                return Ok(Some(Event::Ping(frame.payload)));
            }
            (Opcode::Pong, begun) => {
                self.begun = begun;
                return Ok(None);
            }
            (Opcode::Text | Opcode::Binary, None) => frame.payload,
            (Opcode::Continuation, Some(mut begun)) => {
                if begun.len() + frame.payload.len() > MOST {
                    return Err(CloseCode::TooLarge);
                }
                begun.extend_from_slice(&frame.payload);
                begun
            }
            (Opcode::Text | Opcode::Binary, Some(_)) | (Opcode::Continuation, None) => {
                return Err(CloseCode::ProtocolError);
            }
        };
        if frame.is_last {
            return Ok(Some(Event::Message(whole)));
        }
        self.begun = Some(whole);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a client sends it.
    fn masked(frame: &Frame, mask: [u8; 4]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(frame, 0x80, &mut bytes);
        bytes.extend_from_slice(&mask);
        let mut payload = frame.payload.clone();
        apply(mask, &mut payload);
        bytes.extend_from_slice(&payload);
        bytes
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let control = (
            prop_oneof![Just(Opcode::Close), Just(Opcode::Ping), Just(Opcode::Pong)],
            0..126_usize,
        );
        let sizes = prop_oneof![4 => 0..300_usize, 1 => 65_500..65_600_usize];
        let some = (
            prop_oneof![Just(Opcode::Continuation), Just(Opcode::Text), Just(Opcode::Binary)],
            sizes,
        );
        prop_oneof![
            control.prop_map(|(opcode, length)| (true, opcode, length)),
            (any::<bool>(), some).prop_map(|(is_last, (opcode, length))| (is_last, opcode, length)),
        ]
        .prop_map(|(is_last, opcode, length)| Frame {
            is_last,
            opcode,
            payload: (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn frames_survive_masks_and_being_cut_anywhere(
            frames in proptest::collection::vec(frame(), 1..5), mask in any::<[u8; 4]>(),
            cuts in proptest::collection::vec(1..2_000_usize, 1..40),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| masked(frame, mask)).collect();
            let mut rest = bytes.as_slice();
            let mut cuts = cuts.iter().cycle();
            let (mut buffer, mut read) = (BytesMut::new(), Vec::new());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                buffer.extend_from_slice(piece);
                while let Some(frame) = decode(&mut buffer).unwrap() {
                    read.push(frame);
                }
                rest = more;
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn no_bytes_make_the_decoder_fail_otherwise_than_by_a_close_code(
            bytes in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            let mut buffer = BytesMut::from(&bytes[..]);
            let mut messages = Messages::default();
            while let Ok(Some(frame)) = decode(&mut buffer) {
                if messages.push(frame).is_err() {
                    break;
                }
            }
        }
    }

    fn refused(bytes: &[u8]) -> Option<CloseCode> {
        decode(&mut BytesMut::from(bytes)).err()
    }

    #[test]
    fn what_breaks_the_protocol_is_told_by_its_code() {
        let wrong = Some(CloseCode::ProtocolError);
        assert_eq!(refused(&[0x82, 0x01, b'a']), wrong, "not masked");
        assert_eq!(refused(&[0xc2, 0x80, 0, 0, 0, 0]), wrong, "an extension");
        assert_eq!(refused(&[0x83, 0x80, 0, 0, 0, 0]), wrong, "no such opcode");
        assert_eq!(refused(&[0x09, 0x80, 0, 0, 0, 0]), wrong, "a ping in pieces");
        assert_eq!(refused(&[0x89, 0xfe, 0, 126]), wrong, "a long ping");
        let long = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1];
        assert_eq!(refused(&long), Some(CloseCode::TooLarge));
        let endless = [0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(refused(&endless), Some(CloseCode::TooLarge));
    }

    #[test]
    fn pieces_make_a_message_with_pings_between_them() {
        let piece = |is_last, opcode, text: &str| Frame {
            is_last,
            opcode,
            payload: text.as_bytes().to_vec(),
        };
        let mut messages = Messages::default();
        assert_eq!(messages.push(piece(false, Opcode::Binary, "a")), Ok(None));
        let ping = messages.push(piece(true, Opcode::Ping, "p"));
        assert_eq!(ping, Ok(Some(Event::Ping(b"p".to_vec()))));
        assert_eq!(messages.push(piece(false, Opcode::Continuation, "b")), Ok(None));
        let whole = messages.push(piece(true, Opcode::Continuation, "c"));
        assert_eq!(whole, Ok(Some(Event::Message(b"abc".to_vec()))));
        let alone = messages.push(piece(true, Opcode::Continuation, "d"));
        assert_eq!(alone, Err(CloseCode::ProtocolError));
        messages.push(piece(false, Opcode::Binary, "a")).unwrap();
        let twice = messages.push(piece(true, Opcode::Binary, "b"));
        assert_eq!(twice, Err(CloseCode::ProtocolError));
        messages.push(piece(false, Opcode::Binary, &"a".repeat(MOST))).unwrap();
        let long = messages.push(piece(true, Opcode::Continuation, "b"));
        assert_eq!(long, Err(CloseCode::TooLarge));
    }

    #[test]
    fn what_we_send_is_not_masked() {
        assert_eq!(binary(vec![1, 2]), [0x82, 2, 1, 2]);
        assert_eq!(close(CloseCode::Normal), [0x88, 2, 0x03, 0xe8]);
        assert_eq!(binary(vec![0; 300])[..4], [0x82, 126, 1, 44]);
        assert_eq!(binary(vec![0; 70_000])[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
    }
}
