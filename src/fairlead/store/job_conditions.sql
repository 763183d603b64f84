-- Conditions on a job `j` and its definition `d`. They hold for fairlead.jobs and for fairlead.job_records, except
-- where_status, which needs the view.

-- name: where_id
j.id = %(id)s

-- name: where_tenant_id
j.tenant_id = %(tenant_id)s

-- name: where_status
j.status = any(%(status)s::fairlead.job_status[])

-- name: where_record_status
-- where_status for job_records, where a running job is still queued: its lease says that it runs.
(j.status = any(%(record_status)s::fairlead.job_status[])
    and (%(with_running)s::boolean or j.status <> 'queued'
        or not exists (select from fairlead.leases l where l.job_id = j.id))
or %(with_running)s::boolean and j.status = 'queued' and exists (select from fairlead.leases l where l.job_id = j.id))

-- name: where_troubled
-- In addition to where_status if only these are wanted: the partial index has exactly them.
j.troubled

-- name: where_running
j.id in (select l.job_id from fairlead.leases l)

-- name: where_leased
-- There are only as many as workers can run at once.
j.id = any(array(select l.job_id from fairlead.leases l where l.tenant_id = %(tenant_id)s))

-- name: where_waiting_for
-- A queued job waits for its time (scheduled), for its next attempt after a failure (retrying), or for a worker (ready).
(j.status = 'queued' and case %(waiting_for)s::text
    when 'ready' then not exists (
            select from fairlead.later l where l.due_at = j.scheduled_for and l.job_id = j.id and not l.held)
        and not exists (select from fairlead.leases l where l.job_id = j.id)
    else (%(waiting_for)s = 'retrying') = (j.failure_count + j.lost_count > 0) and exists (
        select from fairlead.later l where l.due_at = j.scheduled_for and l.job_id = j.id and not l.held) end)

-- name: where_q
-- A part of a definition's key, of the last error or of the payload; a correlation id, or the beginning of a correlation id
-- or dedupe key. A value that may hold a secret must match completely: with parts a caller could guess it letter by letter.
-- With redact_patterns any value may hold a secret.
(j.definition_id = any(array(
        select k.id from fairlead.job_definitions k where strpos(lower(k.key), lower(%(q)s)) > 0))
    or j.correlation_id = %(q)s
    or (not %(q_whole)s::boolean and d.secret_paths = '{}' and j.secret_paths is null and (
        starts_with(lower(j.correlation_id), lower(%(q)s)) or starts_with(lower(j.dedupe_key), lower(%(q)s))
        or (j.status <> 'succeeded' and strpos(lower(j.last_error), lower(%(q)s)) > 0)
        or strpos(lower(j.payload::text), lower(%(q)s)) > 0)))

-- name: where_q_id
-- The id of the job, or its correlation id.
j.id = any(array(
    (select o.id from fairlead.jobs o where o.id = %(q_id)s)
    union
    (select o.id from fairlead.jobs o where o.tenant_id = %(tenant_id)s::uuid and o.correlation_id = %(q)s
     order by o.id desc limit 2000)))

-- name: where_id_part
-- The beginning of an id, or its last characters.
-- Bytes first: for a million ids, text takes three times as long.
(j.id between %(q_first)s::uuid and %(q_last)s::uuid
    or substr(uuid_send(j.id), %(q_from)s) = %(q_bytes)s
        and right(translate(j.id::text, '-', ''), %(q_digits)s) = %(q_part)s)

-- name: where_source
j.source = %(source)s

-- name: where_definition_key
-- Not in a form that an index can use: few of a definition's jobs may match the other conditions.
j.definition_id is not distinct from (select id from fairlead.job_definitions where key = %(definition_key)s)

-- name: where_definition_id
j.definition_id = %(definition_id)s

-- name: where_host_id
j.host_id = %(host_id)s

-- name: where_dedupe_key
(j.dedupe_key is not null and hashtextextended(j.dedupe_key, 0) = hashtextextended(%(dedupe_key)s, 0)
    and j.dedupe_key = %(dedupe_key)s)

-- name: where_key
-- The newest jobs with a dedupe key, by its index: as the system, or as a tenant.
j.id = any(array(
    (select o.id from fairlead.jobs o
     where fairlead.tenant_of_session() is null and o.tenant_id = %(tenant_id)s and o.dedupe_key is not null
        and hashtextextended(o.dedupe_key, 0) = hashtextextended(%(dedupe_key)s, 0) and o.dedupe_key = %(dedupe_key)s
     order by o.id desc limit 2000)
    union all
    (select o.id from fairlead.jobs_with_key(%(dedupe_key)s, 2000) as o(id)
     where fairlead.tenant_of_session() is not null)))

-- name: where_correlation_id
j.correlation_id = %(correlation_id)s

-- name: where_parent_id
-- The children of a job, by their index.
j.id = any(array(select o.id from fairlead.jobs o where o.parent_id = %(parent_id)s limit 2000))

-- name: where_workflow_run_id
-- The jobs of a run, by their index.
j.id = any(array(select o.id from fairlead.jobs o where o.workflow_run_id = %(workflow_run_id)s))

-- name: where_created_after
j.queued_at >= %(created_after)s

-- name: where_created_before
j.queued_at < %(created_before)s

-- name: where_worker
-- Jobs that a worker runs now or ran last: its id, or the beginning of it.
(starts_with(j.claimed_by_worker, %(worker)s)
    or j.id = any(array(select l.job_id from fairlead.leases l where starts_with(l.worker_id, %(worker)s))))

-- name: where_error
-- A part of the last error. An error may repeat a secret of its job, and a caller could guess it letter by letter: the
-- errors of jobs with secrets are not searched, and with redact_patterns none is.
(strpos(lower(j.last_error), lower(%(error)s)) > 0 and j.status <> 'succeeded'
    and not %(q_whole)s::boolean and d.secret_paths = '{}' and j.secret_paths is null)

-- name: where_duration_over
-- The last attempt took longer, or the running one already has.
(j.finished_at - j.started_at > make_interval(secs => %(duration_over)s)
    or j.id = any(array(
        select l.job_id from fairlead.leases l
        where clock_timestamp() - l.started_at > make_interval(secs => %(duration_over)s))))

-- name: where_duration_under
(j.finished_at - j.started_at < make_interval(secs => %(duration_under)s))

-- name: where_payload
-- The value at a path of the payload, as text; `*` in the searched text stands for any characters. Values at or beside
-- secret paths of the same first name do not match; with redact_patterns only whole values do.
((j.payload #>> %(payload_path_0)s::text[]) like %(payload_text_0)s
    and not exists (
        select from unnest(d.secret_paths || coalesce(j.secret_paths, '{}')) as s(path)
        where split_part(s.path, '/', 2) in ('', '*', '**', %(payload_name_0)s)))

-- name: where_payload_contains
-- A payload that has these values: the containment of jsonb, which compares whole values. A payload with a secret at, below
-- or beside one of the compared names does not match: with each guess a caller would learn something of it.
(j.payload @> %(payload_contains)s::jsonb
    and not exists (
        select from unnest(d.secret_paths || coalesce(j.secret_paths, '{}')) as s(path)
        where split_part(s.path, '/', 2) = any(%(compared_names)s)))

-- name: where_tags
j.tags @> %(tags)s::text[]

-- name: where_uncanceled
-- No cancel was requested.
j.cancel_requested_at is null

-- name: where_place
-- A tenant's jobs, in a form that only an index that begins with the tenant can use: with the primary key, which has the
-- same order, the planner would walk through the jobs of all tenants.
j.tenant_id = %(tenant_id)s
and (j.tenant_id, j.id) >= (%(tenant_id)s, %(first)s)
and (j.tenant_id, j.id) <= (%(tenant_id)s, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
and j.id >= %(first)s and j.id < %(before)s

-- name: where_definition_place
-- A tenant's jobs of a definition, in a form that only the index of both can use.
j.tenant_id = %(tenant_id)s and j.definition_id = %(definition_id)s
and (j.tenant_id, j.definition_id, j.id) >= (%(tenant_id)s, %(definition_id)s, %(first)s)
and (j.tenant_id, j.definition_id, j.id) <= (%(tenant_id)s, %(definition_id)s, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
and j.id >= %(first)s and j.id < %(before)s

-- name: where_before
j.id < %(before)s

-- name: where_first
j.id >= %(first)s
