//! Types of records that differ between the release series of openraft.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

use crate::record::Applied;

/// A record of a release series of openraft.
pub(crate) trait Record:
    Serialize + DeserializeOwned + Clone + PartialEq + fmt::Debug + Send + 'static
{
}

impl<T: Serialize + DeserializeOwned + Clone + PartialEq + fmt::Debug + Send + 'static> Record
    for T
{
}

/// A release series of openraft with the types of an application.
pub(crate) trait Series: 'static {
    /// The name of the series. A store records it: another series decodes other types.
    const NAME: &'static str;

    /// The id of an entry.
    type LogId: Record;
    /// The members of a cluster, and the id of the entry that they are from.
    type Membership: Record + Default;
    /// The metadata of a snapshot.
    type Meta: Record;
    /// An entry of the log.
    type Entry: Serialize + DeserializeOwned;
    /// A request of a client.
    type Request;

    /// Returns the index of an entry.
    fn index(log_id: &Self::LogId) -> u64;

    /// Returns the id of an entry.
    fn log_id(entry: &Self::Entry) -> &Self::LogId;

    /// Splits an entry.
    fn payload(entry: Self::Entry) -> Payload<Self>;

    /// Returns the metadata of a new snapshot.
    fn meta(applied: AppliedOf<Self>) -> Self::Meta;

    /// Returns the id of the last entry in a snapshot.
    fn last_log_id(meta: &Self::Meta) -> Option<&Self::LogId>;
}

/// The content of an entry.
pub(crate) enum Payload<S: Series + ?Sized> {
    Blank,
    Request(S::Request),
    Membership(S::Membership),
}

/// Contents of the state machine of a release series.
pub(crate) type AppliedOf<S> = Applied<<S as Series>::LogId, <S as Series>::Membership>;
