-- Enqueues one job. outcome is 'enqueued', 'deduplicated' (job_id is then the job that holds the key), the refusal
-- of resolve, 'encryption_key_missing' (a secret of the payload is not sealed), or 'quota_exceeded' (`quota` then has the quota, its use and its limit). `quotas` are those of the caller's
-- settings; null: the caller has checked the quotas. With a given id, a repeated call fails on the primary key instead of
-- enqueueing twice. waits: the job is in later. The caller notifies, after its commit if it controls the commit.
create or replace function fairlead.enqueue_one(
    tenant text, definition_key text, payload jsonb, priority integer default null,
    scheduled_for timestamptz default null, max_attempts integer default null, dedupe_key text default null,
    correlation_id text default null, source fairlead.job_source default 'manual', source_ref text default null,
    parent_id uuid default null, actor text default null, id uuid default null,
    expected_version integer default null, trace text default null, host_id uuid default null,
    resource_id uuid default null, quotas jsonb default '{}', tags text[] default null, timeout integer default null,
    expires_in double precision default null, unique_for double precision default null, debounce jsonb default null,
    out job_id uuid, out outcome text, out definition jsonb, out tenant_id uuid, out definition_id uuid,
    out waits boolean, out quota jsonb
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    about record;
    moment timestamptz := clock_timestamp();
    hash bytea;
    target record;
    root uuid;
    job_limit_key uuid;
    dropped_for uuid;
    due timestamptz := enqueue_one.scheduled_for;
    job_expires_at timestamptz;
    holder record;
    debounced record;
begin
    perform fairlead.hold_tenant(enqueue_one.tenant);
    select * into about
    from fairlead.resolve(enqueue_one.tenant, enqueue_one.definition_key, enqueue_one.expected_version);
    if about.refusal is not null then
        outcome := about.refusal;
        definition := about.definition;
        return;
    end if;
    if about.sealed_paths is not null and fairlead.has_plain_secret(about.sealed_paths, enqueue_one.payload) then
        outcome := 'encryption_key_missing';
        return;
    end if;

    select * into target from fairlead.target_of(
        about.tenant_id, about.definition_id, enqueue_one.payload, enqueue_one.host_id, enqueue_one.resource_id);
    if target.refusal is not null then
        outcome := target.refusal;
        return;
    end if;
    if target.target_host is not null then
        -- this lock and the removal of a host exclude each other
        perform from fairlead.hosts h where h.id = target.target_host for key share;
        if not found then
            outcome := 'host_unknown';
            return;
        end if;
    end if;

    if about.by_key is not null then
        job_limit_key := fairlead.limit_key_of(about.by_key, enqueue_one.payload);
    end if;
    job_id := coalesce(enqueue_one.id, fairlead.uuid7());
    tenant_id := about.tenant_id;
    definition_id := about.definition_id;
    if enqueue_one.dedupe_key is not null then
        hash := sha256(convert_to(enqueue_one.dedupe_key, 'UTF8'));
    end if;
    if enqueue_one.parent_id is not null then
        root := fairlead.root_run_of(enqueue_one.parent_id);
    end if;
    if enqueue_one.quotas is not null then
        quota := coalesce(
            fairlead.room_of(about.tenant_id, 1, enqueue_one.quotas),
            case when root is not null then fairlead.room_in_run(root, 1, enqueue_one.quotas) end);
        if quota is not null then
            -- a job that will be deduplicated does not count
            perform from fairlead.active_keys k where k.tenant_id = about.tenant_id and k.key_hash = hash
            union all
            select from fairlead.debounces d
            where d.tenant_id = about.tenant_id and enqueue_one.debounce is not null and d.key_hash = sha256(convert_to(
                concat_ws(' ', about.definition_id, enqueue_one.debounce ->> 'key'), 'UTF8'));
            if not found then
                job_id := null;
                outcome := 'quota_exceeded';
                return;
            end if;
        end if;
    end if;
    if job_limit_key is not null and coalesce(about.by_key ->> 'strategy', 'queue') <> 'queue' then
        -- before the dedupe key, which other jobs of the same key may use
        perform pg_advisory_xact_lock(fairlead.key_turn_of(about.definition_id, about.tenant_id, job_limit_key));
    end if;
    if hash is not null then
        loop
            -- waits for an uncommitted holder of the key, so the answer below is final
            insert into fairlead.active_keys (tenant_id, key_hash, job_id, unique_until)
                values (about.tenant_id, hash, enqueue_one.job_id, moment + make_interval(secs => enqueue_one.unique_for))
                on conflict do nothing;
            exit when found;
            select k.job_id, k.unique_until into holder from fairlead.active_keys k
                where k.tenant_id = about.tenant_id and k.key_hash = hash;
            if found and holder.unique_until <= clock_timestamp() then
                -- taken over if its job has ended
                continue when fairlead.free_key(about.tenant_id, hash);
            end if;
            if holder.job_id is not null then
                job_id := holder.job_id;
                outcome := 'deduplicated';
                -- the holder may have committed without its synchronous standby, if its wait for that was canceled: this
                -- answer then waits for it
                if current_setting('synchronous_standby_names') <> '' then
                    perform pg_catalog.pg_logical_emit_message(true, 'fairlead', '');
                end if;
                return;
            end if;
            -- the holder ended in between: the key is free again
            job_id := coalesce(enqueue_one.id, fairlead.uuid7());
        end loop;
    end if;

    if enqueue_one.debounce is not null then
        select * into debounced from fairlead.debounce_job(
            about.tenant_id, about.definition_id, enqueue_one.job_id, enqueue_one.debounce, enqueue_one.payload,
            target.target_host, target.target_resource, job_limit_key, enqueue_one.expires_in, about.by_key);
        due := debounced.due_at;
        if debounced.moved is not null then
            job_id := debounced.moved;
            outcome := 'deduplicated';
            waits := due > moment;
            return;
        end if;
    end if;

    if job_limit_key is not null then
        dropped_for := fairlead.apply_key_strategy(
            about.definition_id, about.tenant_id, job_limit_key, about.by_key, enqueue_one.job_id,
            coalesce(enqueue_one.actor, session_user));
        if dropped_for is not null then
            if hash is not null then
                delete from fairlead.active_keys k
                where k.tenant_id = about.tenant_id and k.key_hash = hash and k.job_id = enqueue_one.job_id;
            end if;
            if enqueue_one.debounce is not null then
                delete from fairlead.debounces d
                where d.tenant_id = about.tenant_id and d.job_id = enqueue_one.job_id and d.key_hash = sha256(convert_to(
                    concat_ws(' ', about.definition_id, enqueue_one.debounce ->> 'key'), 'UTF8'));
            end if;
            job_id := dropped_for;
            outcome := 'deduplicated';
            return;
        end if;
    end if;

    if enqueue_one.expires_in is not null then
        job_expires_at := greatest(due, moment) + make_interval(secs => enqueue_one.expires_in);
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        values (job_expires_at, enqueue_one.job_id, about.tenant_id);
    end if;
    if cardinality(enqueue_one.tags) > 0 then
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select about.tenant_id, t.tag, enqueue_one.job_id from unnest(enqueue_one.tags) as t(tag);
    end if;

    insert into fairlead.job_records (
        id, tenant_id, definition_id, parent_id, priority, max_attempts, scheduled_for, queued_at,
        source, source_ref, dedupe_key, correlation_id, created_by, payload, trace, host_id, resource_id,
        root_run_id, limit_key, tags, timeout_seconds, expires_at)
    values (
        enqueue_one.job_id, about.tenant_id, about.definition_id, enqueue_one.parent_id,
        coalesce(enqueue_one.priority, about.default_priority),
        coalesce(enqueue_one.max_attempts, about.max_attempts),
        coalesce(due, moment), moment,
        enqueue_one.source, enqueue_one.source_ref, enqueue_one.dedupe_key, enqueue_one.correlation_id,
        coalesce(enqueue_one.actor, session_user), enqueue_one.payload, enqueue_one.trace,
        target.target_host, target.target_resource, root, job_limit_key,
        case when cardinality(enqueue_one.tags) > 0 then enqueue_one.tags end, enqueue_one.timeout, job_expires_at);
    if root is not null then
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs) values (root, about.tenant_id, 1);
    end if;

    if due > moment then
        insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, host_id, limit_key)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), due, target.target_host, job_limit_key);
    else
        -- a time in the past does not move it ahead in the queue, nor count as waiting time
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key)
        values (enqueue_one.job_id, about.tenant_id, about.definition_id,
            coalesce(enqueue_one.priority, about.default_priority), moment, target.target_host, job_limit_key);
    end if;

    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    values (about.tenant_id, about.definition_id, date_trunc('minute', moment), 1);

    insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
    values (moment, about.tenant_id, coalesce(enqueue_one.actor, session_user), 'job_created', 'job',
        enqueue_one.job_id::text,
        case when target.target_resource is null then '{}'
            else fairlead.resource_named(about.definition_id, enqueue_one.payload)
                || jsonb_build_object('resource_id', target.target_resource) end
        || case when target.target_host is null then '{}' else jsonb_build_object('host_id', target.target_host) end
        || jsonb_build_object('definition_key', enqueue_one.definition_key)
        -- the real role of a caller through a SECURITY DEFINER function; fairlead_tenant is the server's own role
        || case when session_user <> current_user and current_user <> 'fairlead_tenant'
            then jsonb_build_object('role', session_user) else '{}' end);

    outcome := 'enqueued';
    waits := coalesce(due > moment, false);
end
$$;

revoke execute on function fairlead.enqueue_one from public;
grant execute on function fairlead.enqueue_one to fairlead_tenant;
