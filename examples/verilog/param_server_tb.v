// A parameter server and one worker: the worker writes a gradient into the server's table; the server updates the
// model and writes it into the worker's buffer.
`timescale 1ns / 1ps

// A worker: an RDMA NIC with its memory and its host.
module worker (
    input clk, input rst,
    output [127:0] tx_data, output [15:0] tx_keep, output tx_last, output tx_valid, input tx_ready,
    input [127:0] rx_data, input [15:0] rx_keep, input rx_last, input rx_valid, output rx_ready
);
    `include "rdma_nic.vh"
    `include "rdma_nic_instance.vh"

    assign tx_data = mac_tx_tdata, tx_keep = mac_tx_tkeep, tx_last = mac_tx_tlast, tx_valid = mac_tx_tvalid;
    assign mac_rx_tdata = rx_data, mac_rx_tkeep = rx_keep, mac_rx_tlast = rx_last, mac_rx_tvalid = rx_valid;
    assign mac_tx_tready = tx_ready, rx_ready = mac_rx_tready, mac_rx_tuser = 0;  // no frame is bad

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );
    axi_memory #(.WIDTH(128), .FILE("param_server_worker.hex")) memory (
        .clk(clk), .arid(memory_arid), .araddr(memory_araddr), .arlen(memory_arlen), .arsize(memory_arsize),
        .arburst(memory_arburst), .arvalid(memory_arvalid), .arready(memory_arready), .rid(memory_rid),
        .rdata(memory_rdata), .rresp(memory_rresp), .rlast(memory_rlast), .rvalid(memory_rvalid),
        .rready(memory_rready), .awid(memory_awid), .awaddr(memory_awaddr), .awlen(memory_awlen),
        .awsize(memory_awsize), .awburst(memory_awburst), .awvalid(memory_awvalid), .awready(memory_awready),
        .wdata(memory_wdata), .wstrb(memory_wstrb), .wlast(memory_wlast), .wvalid(memory_wvalid),
        .wready(memory_wready), .bid(memory_bid), .bresp(memory_bresp), .bvalid(memory_bvalid),
        .bready(memory_bready)
    );

    `include "param_server_settings.vh"

    task connect;
        begin
            host.expect_word(RDMA_NIC_ID_OFFSET, RDMA_NIC_ID_RESET);
            host.expect_word(RDMA_NIC_VERSION_OFFSET, RDMA_NIC_VERSION_RESET);
            host.write64(RDMA_NIC_OWN_MAC_OFFSET, WORKER_MAC);
            host.write(RDMA_NIC_OWN_IP_OFFSET, WORKER_IP);
            host.write(RDMA_NIC_REGION_OFFSET, RDMA_NIC_REGION_REGION_ENABLE_MASK);
            host.write(RDMA_NIC_REGION_KEY_OFFSET, KEY);
            host.write64(RDMA_NIC_REGION_BASE_OFFSET, BUFFERS);
            host.write64(RDMA_NIC_REGION_LIMIT_OFFSET, BUFFERS_END);
            host.write(RDMA_NIC_REGION_PAIRS_OFFSET, 1);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_SET_REGION_MASK);
            host.write(RDMA_NIC_PAIR_OFFSET, RDMA_NIC_PAIR_PAIR_ENABLE_MASK | 3 << RDMA_NIC_PAIR_WINDOW_SHIFT
                       | 7 << RDMA_NIC_PAIR_RETRIES_SHIFT);  // packets of 256 bytes, 8 in flight
            host.write(RDMA_NIC_PEER_NUMBER_OFFSET, 'h100);
            host.write64(RDMA_NIC_PEER_MAC_OFFSET, SERVER_MAC);
            host.write(RDMA_NIC_PEER_IP_OFFSET, SERVER_IP);
            host.write(RDMA_NIC_SOURCE_PORT_OFFSET, 'hc000);
            host.write(RDMA_NIC_SEND_PSN_OFFSET, 5000);
            host.write(RDMA_NIC_RECEIVE_PSN_OFFSET, 1000);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_CONNECT_MASK);
            host.poll(RDMA_NIC_STATUS_OFFSET, RDMA_NIC_STATUS_CONNECTING_MASK, 0);
            host.expect_word(RDMA_NIC_REFUSALS_OFFSET, 0);
        end
    endtask

    task push;  // write gradient and trailer into the server's table
        begin
            host.write(RDMA_NIC_WRITE_OFFSET, 0);  // queue pair 0, no immediate data, tag 0
            host.write64(RDMA_NIC_LOCAL_ADDRESS_OFFSET, GRADIENT);
            host.write64(RDMA_NIC_REMOTE_ADDRESS_OFFSET, TABLE);
            host.write(RDMA_NIC_KEY_OFFSET, KEY);
            host.write(RDMA_NIC_LENGTH_OFFSET, TABLE_END - TABLE);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_POST_MASK);
            host.poll(RDMA_NIC_STATUS_OFFSET, RDMA_NIC_STATUS_POSTING_MASK, 0);
            host.expect_word(RDMA_NIC_POST_REFUSAL_OFFSET, 0);
        end
    endtask
endmodule

module param_server_tb;
    `include "param_server_settings.vh"
    `include "param_server.vh"
    `include "param_server_instance.vh"

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, n, lane;
    always @(posedge clk) cycle <= cycle + 1;

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );
    axi_memory #(.WIDTH(128), .FILE("param_server_before.hex")) memory_port (
        .clk(clk), .arid(memory_arid), .araddr(memory_araddr), .arlen(memory_arlen), .arsize(memory_arsize),
        .arburst(memory_arburst), .arvalid(memory_arvalid), .arready(memory_arready), .rid(memory_rid),
        .rdata(memory_rdata), .rresp(memory_rresp), .rlast(memory_rlast), .rvalid(memory_rvalid),
        .rready(memory_rready), .awid(memory_awid), .awaddr(memory_awaddr), .awlen(memory_awlen),
        .awsize(memory_awsize), .awburst(memory_awburst), .awvalid(memory_awvalid), .awready(memory_awready),
        .wdata(memory_wdata), .wstrb(memory_wstrb), .wlast(memory_wlast), .wvalid(memory_wvalid),
        .wready(memory_wready), .bid(memory_bid), .bresp(memory_bresp), .bvalid(memory_bvalid),
        .bready(memory_bready)
    );
    axi_memory #(.WIDTH(128), .FILE("param_server_before.hex")) rows_port (
        .clk(clk), .arid(rows_arid), .araddr(rows_araddr), .arlen(rows_arlen), .arsize(rows_arsize),
        .arburst(rows_arburst), .arvalid(rows_arvalid), .arready(rows_arready), .rid(rows_rid),
        .rdata(rows_rdata), .rresp(rows_rresp), .rlast(rows_rlast), .rvalid(rows_rvalid), .rready(rows_rready),
        .awid(rows_awid), .awaddr(rows_awaddr), .awlen(rows_awlen), .awsize(rows_awsize),
        .awburst(rows_awburst), .awvalid(rows_awvalid), .awready(rows_awready), .wdata(rows_wdata),
        .wstrb(rows_wstrb), .wlast(rows_wlast), .wvalid(rows_wvalid), .wready(rows_wready), .bid(rows_bid),
        .bresp(rows_bresp), .bvalid(rows_bvalid), .bready(rows_bready)
    );
    axi_memory #(.WIDTH(128), .FILE("param_server_before.hex")) table_port (
        .clk(clk), .arid(table_arid), .araddr(table_araddr), .arlen(table_arlen), .arsize(table_arsize),
        .arburst(table_arburst), .arvalid(table_arvalid), .arready(table_arready), .rid(table_rid),
        .rdata(table_rdata), .rresp(table_rresp), .rlast(table_rlast), .rvalid(table_rvalid),
        .rready(table_rready), .awvalid(1'b0), .wvalid(1'b0), .bready(1'b1)
    );
    axi_memory #(.WIDTH(128), .FILE("param_server_before.hex")) scan_port (
        .clk(clk), .arid(scan_arid), .araddr(scan_araddr), .arlen(scan_arlen), .arsize(scan_arsize),
        .arburst(scan_arburst), .arvalid(scan_arvalid), .arready(scan_arready), .rid(scan_rid),
        .rdata(scan_rdata), .rresp(scan_rresp), .rlast(scan_rlast), .rvalid(scan_rvalid), .rready(scan_rready),
        .awvalid(1'b0), .wvalid(1'b0), .bready(1'b1)
    );
    // One memory at four ports: each word that a port writes goes to the memories of the others, too.
    always @(posedge clk)
        for (lane = 0; lane < 16; lane = lane + 1) begin
            if (memory_wvalid && memory_wready && memory_wstrb[lane]) begin
                rows_port.words[memory_port.target][8*lane+:8] <= memory_wdata[8*lane+:8];
                table_port.words[memory_port.target][8*lane+:8] <= memory_wdata[8*lane+:8];
                scan_port.words[memory_port.target][8*lane+:8] <= memory_wdata[8*lane+:8];
            end
            if (rows_wvalid && rows_wready && rows_wstrb[lane]) begin
                memory_port.words[rows_port.target][8*lane+:8] <= rows_wdata[8*lane+:8];
                table_port.words[rows_port.target][8*lane+:8] <= rows_wdata[8*lane+:8];
                scan_port.words[rows_port.target][8*lane+:8] <= rows_wdata[8*lane+:8];
            end
        end

    assign mac_rx_tuser = 0;  // no frame is bad
    worker worker (
        clk, rst, mac_rx_tdata, mac_rx_tkeep, mac_rx_tlast, mac_rx_tvalid, mac_rx_tready,
        mac_tx_tdata, mac_tx_tkeep, mac_tx_tlast, mac_tx_tvalid, mac_tx_tready
    );

    task connect;
        begin
            host.expect_word(PARAM_SERVER_ID_OFFSET, PARAM_SERVER_ID_RESET);
            host.expect_word(PARAM_SERVER_VERSION_OFFSET, PARAM_SERVER_VERSION_RESET);
            host.write64(PARAM_SERVER_OWN_MAC_OFFSET, SERVER_MAC);
            host.write(PARAM_SERVER_OWN_IP_OFFSET, SERVER_IP);
            host.write(PARAM_SERVER_REGION_OFFSET, PARAM_SERVER_REGION_REGION_ENABLE_MASK);
            host.write(PARAM_SERVER_REGION_KEY_OFFSET, KEY);
            host.write64(PARAM_SERVER_REGION_BASE_OFFSET, TABLE);
            host.write64(PARAM_SERVER_REGION_LIMIT_OFFSET, TABLE_END);
            host.write(PARAM_SERVER_REGION_PAIRS_OFFSET, 1);
            host.write(PARAM_SERVER_CONTROL_OFFSET, PARAM_SERVER_CONTROL_SET_REGION_MASK);
            host.write(PARAM_SERVER_PAIR_OFFSET, PARAM_SERVER_PAIR_PAIR_ENABLE_MASK | 3 << PARAM_SERVER_PAIR_WINDOW_SHIFT
                       | 7 << PARAM_SERVER_PAIR_RETRIES_SHIFT);  // packets of 256 bytes, 8 in flight
            host.write(PARAM_SERVER_PEER_NUMBER_OFFSET, 'h100);
            host.write64(PARAM_SERVER_PEER_MAC_OFFSET, WORKER_MAC);
            host.write(PARAM_SERVER_PEER_IP_OFFSET, WORKER_IP);
            host.write(PARAM_SERVER_SOURCE_PORT_OFFSET, 'hc000);
            host.write(PARAM_SERVER_SEND_PSN_OFFSET, 1000);
            host.write(PARAM_SERVER_RECEIVE_PSN_OFFSET, 5000);
            host.write(PARAM_SERVER_CONTROL_OFFSET, PARAM_SERVER_CONTROL_CONNECT_MASK);
            host.poll(PARAM_SERVER_STATUS_OFFSET, PARAM_SERVER_STATUS_CONNECTING_MASK, 0);
            host.expect_word(PARAM_SERVER_REFUSALS_OFFSET, 0);
        end
    endtask

    task start;
        begin
            host.write(PARAM_SERVER_SIZES_OFFSET, 1 << PARAM_SERVER_SIZES_WORKERS_SHIFT
                       | 1 << PARAM_SERVER_SIZES_SLOTS_SHIFT | NUMBER_OF_ROWS << PARAM_SERVER_SIZES_ROWS_SHIFT);
            host.write(PARAM_SERVER_STEP_OFFSET, STEP);
            host.write(PARAM_SERVER_WORDS_OFFSET, MODEL_BYTES / 16);
            host.write(PARAM_SERVER_GRADIENT_BYTES_OFFSET, MODEL_BYTES);
            host.write(PARAM_SERVER_ROW_BYTES_OFFSET, ROW_BYTES);
            host.write(PARAM_SERVER_SLOT_BYTES_OFFSET, TABLE_END - TABLE);  // the table has one slot
            host.write64(PARAM_SERVER_ROWS_BASE_OFFSET, ROWS);
            host.write(PARAM_SERVER_WORKER_OFFSET, 0);
            host.write64(PARAM_SERVER_WORKER_TABLE_OFFSET, TABLE);
            host.write64(PARAM_SERVER_WORKER_BUFFERS_OFFSET, BUFFERS);
            host.write(PARAM_SERVER_WORKER_KEY_OFFSET, KEY);
            host.write(PARAM_SERVER_CONTROL_OFFSET, PARAM_SERVER_CONTROL_SET_WORKER_MASK);
            host.poll(PARAM_SERVER_STATUS_OFFSET, PARAM_SERVER_STATUS_SETTING_MASK, 0);
            host.write(PARAM_SERVER_CONTROL_OFFSET, PARAM_SERVER_CONTROL_START_MASK);
            host.write(PARAM_SERVER_RUN_OFFSET, 1);
            host.poll(PARAM_SERVER_STATUS_OFFSET, PARAM_SERVER_STATUS_REFUSED_MASK, 0);
        end
    endtask

    reg [127:0] expected[0:SERVER_WORDS-1], received[0:WORKER_WORDS-1];
    initial begin
        $readmemh("param_server_after.hex", expected);
        $readmemh("param_server_received.hex", received);
        repeat (4) @(negedge clk);
        rst = 0;
        fork
            connect;
            worker.connect;
        join
        $display("cycle %0d: both queue pairs are connected", cycle);
        start;
        $display("cycle %0d: the server takes gradients", cycle);
        worker.push;
        $display("cycle %0d: the worker's write is accepted", cycle);
        // The row's last word carries the version of the model; it is written last.
        wait (worker.memory.words[BUFFER_END/16-1][127:96] == 1);
        $display("cycle %0d: the worker has version 1 of the model", cycle);
        host.write(PARAM_SERVER_RUN_OFFSET, 0);
        host.poll(PARAM_SERVER_STATUS_OFFSET, PARAM_SERVER_STATUS_BUSY_MASK, 0);
        host.expect_word(PARAM_SERVER_W_VERSION_OFFSET, 1);
        for (n = 0; n < SERVER_WORDS; n = n + 1)
            if (rows_port.words[n] != expected[n]) begin
                $display("FAIL: the server's word %0d is %h, not %h", n, rows_port.words[n], expected[n]);
                $fatal;
            end
        for (n = 0; n < WORKER_WORDS; n = n + 1)
            if (worker.memory.words[n] != received[n]) begin
                $display("FAIL: the worker's word %0d is %h, not %h", n, worker.memory.words[n], received[n]);
                $fatal;
            end
        memory_port.report;
        rows_port.report;
        table_port.report;
        $display("PASS");
        $finish;
    end

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
