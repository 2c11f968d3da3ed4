// Two RDMA NICs back to back: node 0 writes a message with immediate data into the memory of node 1.
`timescale 1ns / 1ps

// A NIC with its memory and its host.
module station #(parameter RANK = 0, parameter FILE = "") (
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
    axi_memory #(.WIDTH(128), .FILE(FILE)) memory (
        .clk(clk), .arid(memory_arid), .araddr(memory_araddr), .arlen(memory_arlen), .arsize(memory_arsize),
        .arburst(memory_arburst), .arvalid(memory_arvalid), .arready(memory_arready), .rid(memory_rid),
        .rdata(memory_rdata), .rresp(memory_rresp), .rlast(memory_rlast), .rvalid(memory_rvalid),
        .rready(memory_rready), .awid(memory_awid), .awaddr(memory_awaddr), .awlen(memory_awlen),
        .awsize(memory_awsize), .awburst(memory_awburst), .awvalid(memory_awvalid), .awready(memory_awready),
        .wdata(memory_wdata), .wstrb(memory_wstrb), .wlast(memory_wlast), .wvalid(memory_wvalid),
        .wready(memory_wready), .bid(memory_bid), .bresp(memory_bresp), .bvalid(memory_bvalid),
        .bready(memory_bready)
    );

    localparam [47:0] MAC = 48'h02_00_00_00_00_01;  // of rank 0; the next rank has the next address
    localparam [31:0] IP = 32'h0a_00_00_01, KEY = 32'h5eed, PAIR = 32'h100;  // PAIR: number of the pair at index 0

    // Queue pair 0 leads to the other node, which may write bytes 0x1000 to 0x1fff here.
    task connect(input [23:0] send_psn, input [23:0] receive_psn);
        begin
            host.expect_word(RDMA_NIC_ID_OFFSET, RDMA_NIC_ID_RESET);
            host.expect_word(RDMA_NIC_VERSION_OFFSET, RDMA_NIC_VERSION_RESET);
            host.write64(RDMA_NIC_OWN_MAC_OFFSET, MAC + RANK);
            host.write(RDMA_NIC_OWN_IP_OFFSET, IP + RANK);
            host.write(RDMA_NIC_REGION_OFFSET, RDMA_NIC_REGION_REGION_ENABLE_MASK);  // region 0
            host.write(RDMA_NIC_REGION_KEY_OFFSET, KEY);
            host.write64(RDMA_NIC_REGION_BASE_OFFSET, 'h1000);
            host.write64(RDMA_NIC_REGION_LIMIT_OFFSET, 'h2000);
            host.write(RDMA_NIC_REGION_PAIRS_OFFSET, 1);  // queue pair 0 may write it
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_SET_REGION_MASK);
            host.write(RDMA_NIC_PAIR_OFFSET, RDMA_NIC_PAIR_PAIR_ENABLE_MASK | 0 << RDMA_NIC_PAIR_MTU_SHIFT  // 256 bytes
                       | 3 << RDMA_NIC_PAIR_WINDOW_SHIFT | 7 << RDMA_NIC_PAIR_RETRIES_SHIFT);  // 8 packets in flight
            host.write(RDMA_NIC_PEER_NUMBER_OFFSET, PAIR);
            host.write64(RDMA_NIC_PEER_MAC_OFFSET, MAC + 1 - RANK);
            host.write(RDMA_NIC_PEER_IP_OFFSET, IP + 1 - RANK);
            host.write(RDMA_NIC_SOURCE_PORT_OFFSET, 'hc000);
            host.write(RDMA_NIC_SEND_PSN_OFFSET, send_psn);
            host.write(RDMA_NIC_RECEIVE_PSN_OFFSET, receive_psn);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_CONNECT_MASK);
            host.poll(RDMA_NIC_STATUS_OFFSET, RDMA_NIC_STATUS_CONNECTING_MASK, 0);
            host.expect_word(RDMA_NIC_REFUSALS_OFFSET, 0);
        end
    endtask

    task post(input [63:0] local_address, input [63:0] remote_address, input [31:0] length, input [15:0] tag);
        begin
            host.write(RDMA_NIC_WRITE_OFFSET, RDMA_NIC_WRITE_WITH_IMMEDIATE_MASK | tag << RDMA_NIC_WRITE_TAG_SHIFT);
            host.write64(RDMA_NIC_LOCAL_ADDRESS_OFFSET, local_address);
            host.write64(RDMA_NIC_REMOTE_ADDRESS_OFFSET, remote_address);
            host.write(RDMA_NIC_KEY_OFFSET, KEY);
            host.write(RDMA_NIC_LENGTH_OFFSET, length);
            host.write(RDMA_NIC_IMMEDIATE_OFFSET, 'hcafe);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_POST_MASK);
            host.poll(RDMA_NIC_STATUS_OFFSET, RDMA_NIC_STATUS_POSTING_MASK, 0);
            host.expect_word(RDMA_NIC_POST_REFUSAL_OFFSET, 0);
        end
    endtask

    task complete(input [15:0] tag);  // wait until the write is acknowledged, and check that it is DONE
        begin
            host.poll(RDMA_NIC_COMPLETION_OFFSET, RDMA_NIC_COMPLETION_COMPLETED_MASK,
                      RDMA_NIC_COMPLETION_COMPLETED_MASK);
            host.expect_word(RDMA_NIC_COMPLETION_OFFSET, RDMA_NIC_COMPLETION_COMPLETED_MASK | tag);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_TAKE_COMPLETION_MASK);
        end
    endtask

    task arrive(input [31:0] length);  // wait for a message; its bytes are in memory then
        begin
            host.poll(RDMA_NIC_ARRIVAL_OFFSET, RDMA_NIC_ARRIVAL_ARRIVED_MASK, RDMA_NIC_ARRIVAL_ARRIVED_MASK);
            host.expect_word(RDMA_NIC_ARRIVED_IMMEDIATE_OFFSET, 'hcafe);
            host.expect_word(RDMA_NIC_ARRIVED_LENGTH_OFFSET, length);
            host.write(RDMA_NIC_CONTROL_OFFSET, RDMA_NIC_CONTROL_TAKE_ARRIVAL_MASK);
        end
    endtask
endmodule

module rdma_tb;
    localparam LENGTH = 1000, SOURCE = 'h205, TARGET = 'h1ffc - LENGTH;  // bytes; none is aligned to the word

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, n;
    always @(posedge clk) cycle <= cycle + 1;

    wire [127:0] data_0, data_1;
    wire [15:0] keep_0, keep_1;
    wire last_0, last_1, valid_0, valid_1, ready_0, ready_1;
    station #(.RANK(0), .FILE("rdma_0.hex")) rank_0 (clk, rst, data_0, keep_0, last_0, valid_0, ready_0,
                                                     data_1, keep_1, last_1, valid_1, ready_1);
    station #(.RANK(1), .FILE("rdma_1.hex")) rank_1 (clk, rst, data_1, keep_1, last_1, valid_1, ready_1,
                                                     data_0, keep_0, last_0, valid_0, ready_0);

    initial begin
        repeat (4) @(negedge clk);
        rst = 0;
        fork
            rank_0.connect(1000, 5000);
            rank_1.connect(5000, 1000);
        join
        $display("cycle %0d: both queue pairs are connected", cycle);
        rank_0.post(SOURCE, TARGET, LENGTH, 7);
        $display("cycle %0d: the write is accepted", cycle);
        fork
            rank_0.complete(7);
            rank_1.arrive(LENGTH);
        join
        $display("cycle %0d: the write is complete at both ends", cycle);
        for (n = 0; n < LENGTH; n = n + 1)
            if (byte_at(1, TARGET + n) != byte_at(0, SOURCE + n)) begin
                $display("FAIL: byte %0d is %h, not %h", n, byte_at(1, TARGET + n), byte_at(0, SOURCE + n));
                $fatal;
            end
        if (byte_at(1, TARGET - 1) != 8'hee || byte_at(1, TARGET + LENGTH) != 8'hee) begin
            $display("FAIL: a byte beside the message has changed");
            $fatal;
        end
        rank_0.memory.report;
        rank_1.memory.report;
        $display("PASS");
        $finish;
    end

    function [7:0] byte_at(input rank, input integer address);
        byte_at = rank ? rank_1.memory.words[address/16][8*(address%16)+:8]
                       : rank_0.memory.words[address/16][8*(address%16)+:8];
    endfunction

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
