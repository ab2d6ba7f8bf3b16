"""The tables and views, and how a database gets them. A released step never changes; a new release adds its own."""

from __future__ import annotations

from collections.abc import Mapping

_TABLES = """
create table {schema}.sessions (
  key bigint generated always as identity primary key,  -- never used again: a stale writer matches no later session
  id text not null unique,
  parent_key bigint references {schema}.sessions(key),  -- a fork begins with its parent's events 1 to parent_seq
  parent_seq bigint not null default 0,
  head_seq bigint not null default 0,       -- the last seq; 0 = nothing written yet
  created double precision not null,        -- seconds since 1970; the views show dates
  updated double precision not null,
  archived boolean not null default false,
  lease_token bigint not null default 0,    -- one more for each writer; an append must know it
  lease_ends timestamptz,                   -- by the database's clock
  lease_holder text,                        -- who writes, for people; null = nobody
  lease_backend integer,                    -- the holder's connection: pid and start of its server process
  lease_backend_start timestamptz
);
create index on {schema}.sessions (parent_key) where parent_key is not null;

create table {schema}.events (
  session_key bigint not null references {schema}.sessions(key),
  seq bigint not null,
  time double precision not null,           -- seconds since 1970; information, never order
  type text not null,
  turn integer,
  step integer,
  owner text,                               -- the plugin whose event it is; null = treadle's own
  required boolean not null,
  data json not null,                       -- not jsonb, which refuses NUL and changes what it keeps
  primary key (session_key, seq)
);
create index on {schema}.events (session_key, seq) where type = 'session/meta';

create function {schema}.events_never_change() returns trigger language plpgsql as
$$begin raise exception 'events are append-only'; end$$;
create trigger events_never_change before update on {schema}.events
  for each row execute function {schema}.events_never_change();

create table {schema}.posts (               -- left for the session's writer, until it has made events of them
  key bigint generated always as identity primary key,
  session_key bigint not null references {schema}.sessions(key) on delete cascade,
  id text not null,
  time double precision not null,
  kind text not null check (kind in ('message', 'decision', 'cancel')),
  data json not null,
  unique (session_key, id)
);
"""

# What a fork inherits is shown once, under the session that wrote it. PostgreSQL keeps NUL and lone surrogates in json
# and refuses to look into it; `readable` shows them as U+FFFD. Pairs of surrogates are characters and stay.
_VIEWS = r"""
create function {schema}.readable(data json) returns json language sql immutable as $$
  select regexp_replace(data::text,
    '\\u(0000|d[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})|(?<!\\ud[89ab][0-9a-f]{2}\\u)d[c-f][0-9a-f]{2})',
    '\\ufffd', 'gi')::json
$$;

create view {schema}.session_dates as
select id, to_timestamp(created) as created_at, to_timestamp(updated) as updated_at, head_seq, archived,
  lease_holder, lease_ends from {schema}.sessions;

create view {schema}.turns as
select s.id as session_id, e.turn, min(to_timestamp(e.time)) as started_at,
  max(to_timestamp(e.time)) filter (where e.type = 'turn/end') as ended_at,
  max({schema}.readable(e.data) ->> 'reason') filter (where e.type = 'turn/end') as reason,
  count(*) filter (where e.type = 'step/start') as steps,
  count(*) filter (where e.type = 'tool/call') as tool_calls
from {schema}.events e join {schema}.sessions s on s.key = e.session_key
where e.turn is not null group by s.id, e.turn;

create view {schema}.messages as
select s.id as session_id, e.seq, to_timestamp(e.time) as at, e.turn, e.step,
  case e.type when 'tool/result' then 'tool' when 'user/message' then 'user' else 'assistant' end as role,
  (select string_agg(part ->> 'text', '')
    from json_array_elements({schema}.readable(e.data)
      #> case e.type when 'tool/result' then '{parts}'::text[] else '{message,parts}'::text[] end) part
    where part ->> 'kind' = 'text') as text
from {schema}.events e join {schema}.sessions s on s.key = e.session_key
where e.type in ('user/message', 'assistant/message', 'tool/result');
"""

STEPS: Mapping[str, str] = {"0001_sessions": _TABLES + _VIEWS}
"""Name and statements, in order; `{schema}` is where they go."""

__all__ = ["STEPS"]
