-- A host can be taken away. A job is enqueued for a host that stays there until the job is, or for none.

-- a tenant's admin takes a host's codes away with it; they stay unreadable
grant delete, select (host_id) on fairlead.enrolment_codes to fairlead_tenant;

create or replace function pg_temp.exchanged(definition text, pieces text[]) returns text language plpgsql as $$
declare
    piece text[];
begin
    foreach piece slice 1 in array pieces loop
        if cardinality(string_to_array(definition, piece[1])) <> 2 then
            raise exception 'not there, or not once: %', piece[1];
        end if;
        definition := replace(definition, piece[1], piece[2]);
    end loop;
    return definition;
end
$$;

do $$
begin
    execute pg_temp.exchanged(
        pg_get_functiondef(
            'fairlead.enqueue_one(text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, '
            'uuid, text, uuid, integer, text, uuid, uuid)'::regprocedure),
        array[['        outcome := target.refusal;
        return;
    end if;
',
        '        outcome := target.refusal;
        return;
    end if;
    if target.target_host is not null then
        -- who takes the host away waits for us, or we for him
        perform from fairlead.hosts h where h.id = target.target_host for key share;
        if not found then
            outcome := ''host_unknown'';
            return;
        end if;
    end if;
']]);
end
$$;
