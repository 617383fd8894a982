//! The server's side of the handshake.

use varve_block::BigEndian;

use crate::export::{ExportInfo, ListedExport};
use crate::inbox::Inbox;
use crate::option::{DecodeOptionError, OptionRequest};
use crate::option_reply::{OptionReply, Refusal, RefusalKind};
use crate::request::RequestDecoder;
use crate::wire::{EXPORT_NAME_ZEROES, FIXED_NEWSTYLE, NO_ZEROES, OPTION_MAGIC, SERVER_MAGIC};
use crate::{NAME_BYTES_MAX, OPTION_COUNT_MAX};

/// The exports of a server.
pub trait Exports {
    /// An export that is ready to be used.
    type Export;

    /// The exports that a client can choose from.
    fn list(&self) -> Vec<ListedExport>;

    /// Finds the export of a name. The empty name stands for the default export.
    ///
    /// # Errors
    /// The refusal for the client.
    fn find(&self, name: &str) -> Result<(ExportInfo, Self::Export), Refusal>;
}

/// The server's use of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPolicy {
    /// TLS is refused.
    Never,
    /// TLS must be started before anything else.
    Required,
}

/// The result of a negotiation.
#[derive(Debug)]
pub struct NegotiatedExport<E> {
    pub export: E,
    /// The properties that the client was told.
    pub info: ExportInfo,
    /// Structured replies are enabled.
    pub structured: bool,
    /// The granted contexts, each with its number.
    pub contexts: Vec<(u32, String)>,
}

/// The next action of the caller.
#[derive(Debug)]
pub enum NegotiationStep<E> {
    /// Send the unsent bytes, switch the connection to TLS, and call
    /// [`ServerNegotiation::tls_started`].
    StartTls,
    /// Send the unsent bytes, then decode requests with [`ServerNegotiation::into_requests`].
    Ready(NegotiatedExport<E>),
    /// Send the unsent bytes. The client has ended the negotiation.
    Ended,
}

/// Why a negotiation failed.
#[derive(Debug, thiserror::Error)]
pub enum NegotiationError {
    /// The client sets unknown flags.
    #[error("the client begins with unknown flags: {flags:#x}")]
    ClientFlags { flags: u32 },
    /// The client sent something other than an option.
    #[error("{0}")]
    Option(#[from] DecodeOptionError),
    #[error("the client has sent more than {OPTION_COUNT_MAX} options")]
    TooManyOptions,
    /// An export requested by the old option cannot be refused with a reply.
    #[error("the client requests {name:?} with an option that cannot be refused: {refusal}")]
    Refused { name: String, refusal: Refusal },
    /// A man in the middle may have inserted these bytes.
    #[error("the client has sent data between its request for TLS and the start of TLS")]
    BytesBeforeTls,
}

/// A connection from its beginning until requests arrive. Pass received bytes to
/// [`receive`](Self::receive). After each [`step`](Self::step), send the bytes from
/// [`take_unsent`](Self::take_unsent).
#[derive(Debug)]
pub struct ServerNegotiation {
    inbox: Inbox,
    unsent: Vec<u8>,
    tls: TlsPolicy,
    is_encrypted: bool,
    has_flags: bool,
    no_zeroes: bool,
    structured: bool,
    option_count: usize,
    /// The export for which contexts were requested, and the granted contexts.
    contexts: Option<(String, Vec<(u32, String)>)>,
}

impl ServerNegotiation {
    /// Starts a negotiation on a new connection.
    #[must_use]
    pub fn new(tls: TlsPolicy) -> Self {
        let mut unsent = Vec::new();
        unsent.extend_from_slice(&SERVER_MAGIC.to_be_bytes());
        unsent.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        unsent.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Self {
            inbox: Inbox::default(),
            unsent,
            tls,
            is_encrypted: false,
            has_flags: false,
            no_zeroes: false,
            structured: false,
            option_count: 0,
            contexts: None,
        }
    }

    /// Accepts received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.receive(bytes);
    }

    /// Takes the bytes that are to be sent now.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Records that TLS has been started on this connection.
    pub fn tls_started(&mut self) {
        self.is_encrypted = true;
    }

    /// The decoder for the requests after the handshake.
    #[must_use]
    pub fn into_requests(self) -> RequestDecoder {
        RequestDecoder::new(self.inbox)
    }

    /// Answers options, until the caller has to act; returns `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`NegotiationError`]: close the connection after sending the unsent bytes.
    pub fn step<X: Exports>(
        &mut self,
        exports: &X,
    ) -> Result<Option<NegotiationStep<X::Export>>, NegotiationError> {
        if !self.has_flags && !self.take_flags()? {
            return Ok(None);
        }
        while let Some((option, byte_count)) = OptionRequest::decode(self.inbox.waiting())? {
            self.inbox.take(byte_count);
            self.option_count = self.option_count.saturating_add(1);
            if self.option_count > OPTION_COUNT_MAX {
                return Err(NegotiationError::TooManyOptions);
            }
            if let Some(step) = self.answer(option, exports)? {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    fn take_flags(&mut self) -> Result<bool, NegotiationError> {
        let Some(flags) = BigEndian::new(self.inbox.waiting()).u32() else { return Ok(false) };
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(NegotiationError::ClientFlags { flags });
        }
        self.inbox.take(4);
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.has_flags = true;
        Ok(true)
    }

    fn answer<X: Exports>(
        &mut self,
        option: OptionRequest,
        exports: &X,
    ) -> Result<Option<NegotiationStep<X::Export>>, NegotiationError> {
        let number = option.number();
        if self.tls == TlsPolicy::Required && !self.is_encrypted {
            return self.answer_before_tls(&option);
        }
        match option {
            OptionRequest::ExportName(name) => {
                return self.use_without_refusal(name, exports).map(Some);
            }
            OptionRequest::Abort => {
                self.reply(number, &OptionReply::Ack);
                return Ok(Some(NegotiationStep::Ended));
            }
            OptionRequest::List => self.list(number, exports),
            OptionRequest::StartTls => {
                let kind = if self.is_encrypted { RefusalKind::Invalid } else { RefusalKind::Policy };
                self.refuse(number, Refusal::new(kind, ""));
            }
            OptionRequest::Info(name, _) => match exports.find(&name) {
                Ok((info, _)) => self.tell(number, &info),
                Err(refusal) => self.refuse(number, refusal),
            },
            OptionRequest::Go(name, _) => match exports.find(&name) {
                Ok((info, export)) => {
                    self.tell(number, &info);
                    return Ok(Some(NegotiationStep::Ready(self.agree(&name, info, export))));
                }
                Err(refusal) => self.refuse(number, refusal),
            },
            OptionRequest::StructuredReply => {
                self.structured = true;
                self.reply(number, &OptionReply::Ack);
            }
            OptionRequest::ListContexts(name, queries) => match self.offered(&name, exports) {
                Ok(offered) => self.list_contexts(number, offered, &queries),
                Err(refusal) => self.refuse(number, refusal),
            },
            OptionRequest::SetContexts(name, queries) => {
                self.contexts = None;
                match self.offered(&name, exports) {
                    Ok(offered) => self.set_contexts(number, name, offered, &queries),
                    Err(refusal) => self.refuse(number, refusal),
                }
            }
            OptionRequest::Unknown(_) => self.refuse(number, Refusal::new(RefusalKind::Unsupported, "")),
            OptionRequest::Malformed(_) => {
                self.refuse(number, Refusal::new(RefusalKind::Invalid, "the option is malformed"));
            }
        }
        Ok(None)
    }

    fn list<X: Exports>(&mut self, number: u32, exports: &X) {
        for listed in exports.list() {
            if listed.name.len() <= NAME_BYTES_MAX && listed.description.len() <= NAME_BYTES_MAX {
                self.reply(number, &OptionReply::Server(listed));
            }
        }
        self.reply(number, &OptionReply::Ack);
    }

    /// Lists the contexts that the queries name. A query that ends with a colon names all that
    /// begin with it, and no query at all names all.
    fn list_contexts(&mut self, number: u32, offered: Vec<String>, queries: &[String]) {
        let matches = |query: &String, context: &String| {
            query == context || (query.ends_with(':') && context.starts_with(query))
        };
        let is_named =
            |context: &String| queries.is_empty() || queries.iter().any(|query| matches(query, context));
        for context in offered.into_iter().filter(is_named) {
            self.reply(number, &OptionReply::Context { id: 0, name: context });
        }
        self.reply(number, &OptionReply::Ack);
    }

    /// Grants the contexts that the queries name exactly, for the export `name`.
    fn set_contexts(&mut self, number: u32, name: String, offered: Vec<String>, queries: &[String]) {
        let requested = offered.into_iter().filter(|context| queries.contains(context));
        let granted: Vec<(u32, String)> = (1..).zip(requested).collect();
        for (id, name) in &granted {
            self.reply(number, &OptionReply::Context { id: *id, name: name.clone() });
        }
        self.contexts = Some((name, granted));
        self.reply(number, &OptionReply::Ack);
    }

    fn answer_before_tls<E>(
        &mut self,
        option: &OptionRequest,
    ) -> Result<Option<NegotiationStep<E>>, NegotiationError> {
        let number = option.number();
        let required = || Refusal::new(RefusalKind::TlsRequired, "this server requires TLS");
        match option {
            OptionRequest::StartTls if !self.inbox.is_empty() => Err(NegotiationError::BytesBeforeTls),
            OptionRequest::StartTls => {
                self.reply(number, &OptionReply::Ack);
                Ok(Some(NegotiationStep::StartTls))
            }
            OptionRequest::Abort => {
                self.reply(number, &OptionReply::Ack);
                Ok(Some(NegotiationStep::Ended))
            }
            OptionRequest::ExportName(name) => {
                Err(NegotiationError::Refused { name: name.clone(), refusal: required() })
            }
            _ => {
                self.refuse(number, required());
                Ok(None)
            }
        }
    }

    fn use_without_refusal<X: Exports>(
        &mut self,
        name: String,
        exports: &X,
    ) -> Result<NegotiationStep<X::Export>, NegotiationError> {
        let (info, export) = exports
            .find(&name)
            .map_err(|refusal| NegotiationError::Refused { name: name.clone(), refusal })?;
        self.unsent.extend_from_slice(&info.size.to_be_bytes());
        self.unsent.extend_from_slice(&info.flags.0.to_be_bytes());
        if !self.no_zeroes {
            self.unsent.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(NegotiationStep::Ready(self.agree(&name, info, export)))
    }

    fn agree<E>(&mut self, name: &str, info: ExportInfo, export: E) -> NegotiatedExport<E> {
        // Contexts that were requested for another export no longer apply.
        let contexts = self.contexts.take().filter(|(of, _)| of == name).map(|(_, granted)| granted);
        NegotiatedExport { export, info, structured: self.structured, contexts: contexts.unwrap_or_default() }
    }

    /// The contexts of an export, if they may be requested now.
    fn offered<X: Exports>(&self, name: &str, exports: &X) -> Result<Vec<String>, Refusal> {
        if !self.structured {
            let message = "contexts need structured replies: request those first";
            return Err(Refusal::new(RefusalKind::Invalid, message));
        }
        exports.find(name).map(|(info, _)| info.contexts)
    }

    fn tell(&mut self, number: u32, info: &ExportInfo) {
        self.reply(number, &OptionReply::Export { size: info.size, flags: info.flags });
        if let Some(name) = &info.canonical_name {
            self.reply(number, &OptionReply::Name(name.clone()));
        }
        if let Some(description) = &info.description {
            self.reply(number, &OptionReply::Description(description.clone()));
        }
        self.reply(number, &OptionReply::BlockSize(info.block_sizes));
        self.reply(number, &OptionReply::Ack);
    }

    fn refuse(&mut self, number: u32, refusal: Refusal) {
        self.reply(number, &OptionReply::Refused(refusal));
    }

    fn reply(&mut self, number: u32, reply: &OptionReply) {
        reply.encode(number, &mut self.unsent);
    }
}
